"""Says in one line why something failed: Spark wraps an error in many others, and only one of them is helpful."""

import re

from pulsar_lakehouse.damage import DIFFER, QUOTED, damaged, unreadable
from pulsar_lakehouse.errors import PermanentError, naming_settings

PERMANENT = (
    "PulsarSourceError:",
    "MissingError:",
    *(f"errors.{kind}Error:" for kind in ("Permanent", "Configuration", "Refused")),
    "DELTA_INVALID_PROTOCOL",
    "DELTA_UNSUPPORTED_FEATURES",
    "Permission denied",
    "No space left",
    "ParentNotDirectoryException",
    "StackOverflowError",
)
"""Texts that mark an error as permanent: a retry would fail in the same way."""

_BUSY_MACHINE = r"Python (?:worker|daemon) failed to (?:connect back|launch worker)|Python worker to connect back"
"""A Python process of Spark had ten seconds to start, and did not: nothing is wrong with what it should read."""

_PERMANENT_STATES = re.compile(r"SQLSTATE: (22|23|42(?!K0[34]|KD6)|P0)")
"""Errors of values, constraints, statements and `raise_error`, but not of files that are missing or already exist."""
NO_CREDENTIALS = (
    "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another way that AWS's "
    "tools find them"
)
_STUCK = (
    r'Timeout \([\d:.]+\)!\n(?:.*\n)*?\s+File "([^"\n]+)", line (\d+) in (\w+)\n\s+File "[^"\n]+/spark/calling\.py"'
)
"""What a Python process says of the function that it could not interrupt, before it ends itself."""
ACCEPTS_LOSS = "`lakehouse land --accept-loss`"
"""The command for all topics: an error has only the name that a topic has in Pulsar."""
_CAUSE = r"\s*\n\s*(?:\x1b\[\d*m)?↳(?:\x1b\[\d*m)?\s*"
"""What delta-rs writes before the cause of an error, in a line of its own."""
_TORN_COMMIT = r"reading file (?:file:/*)?(/\S+/_delta_log/\d+\.json)"

_CHECKSUM = r"ChecksumException: Checksum error: (?:file:/*)?(/\S+\.parquet) at "
_UNREADABLE = r"FAILED_READ_FILE\.NO_HINT\S* Encountered error while reading file (?:file:/*)?(\S+?)\.?\s"

_LINES = (
    (
        r"(?:Pulsar\w+Error: |MissingError: |^)(\S+: no such topic)(?!:)",
        r"\1: `lakehouse topics create` makes the declared ones",
    ),
    (
        r"PulsarSourceError: (\S+(?::| after) .+); failOnDataLoss=false goes on",
        rf"\1; {ACCEPTS_LOSS} writes that down and goes on",
    ),
    (rf"({QUOTED.pattern})", r"\1"),
    (r"DeltaError: (\S+): [^\n]*Permission denied", r"not writable: \1"),
    (r"DeltaError: (\S+): [^\n]*No space left", r"\1: no space left on the disk"),
    (r"\b(?:PulsarSource|Missing|NoAnswer|Broker|Unreachable|Permanent|Configuration|Refused|Busy)Error: (.+)", r"\1"),
    (r"\bDeltaError: (.+)", r"\1"),
    (r"DELTA_INVALID_PROTOCOL_VERSION\S* (.+)", r"a table was written by a newer version of Delta Lake: \1"),
    (
        r"DELTA_UNSUPPORTED_FEATURES_FOR_(?:READ|WRITE)\S* (.+)",
        r"a table was written by a newer version of Delta Lake: \1",
    ),
    (_BUSY_MACHINE, "a Python process of Spark did not start in time: is the machine busy, or its memory used up?"),
    (_STUCK, r"function \3: does not return, and could not be interrupted: \1:\2"),
    (r"Python worker exited unexpectedly", "a Python process of Spark was killed, perhaps because memory ran out"),
    (_TORN_COMMIT, r"\1: torn, as by a power cut: see *After a power cut* in docs/operations.md"),
    (r"http://169\.254\.\d+\.\d+/|NoAwsCredentials|Unable to load credentials", NO_CREDENTIALS),
    (
        r"Error performing \w+ (https?://[^/\s]+)/([^/?\s]*)[\s\S]*?<Code>(\w+)</Code><Message>([^<]*)",
        r"the object store \1 refuses: \3: \4 (bucket \2)",
    ),
    (r"Error performing \w+ (https?://[^/\s]+)", r"the object store \1 does not answer: try again later"),
    (r"UnknownStoreException: `?s3a://([^/`]+)", r"the object store has no bucket \1: create it"),
    (r"Unable to execute HTTP request: ([^\n(]+)", r"the object store does not answer: \1"),
    (r"s3\.model\.\w+Exception: ([^\n(]+?) \(Service: S3, Status Code: (\d+)", r"the object store refuses: \2: \1"),
    (r".*No space left on device.*", "no space left on the disk"),
    (r".*ParentNotDirectoryException: Parent path is not a directory: (.*)", r"not writable: \1 is not a folder"),
    (
        r"\[Errno \d+\] (Not a directory|Permission denied|Read-only file system): '(.+)'",
        r"not writable: \2: \1; LAKEHOUSE_HOME and LAKEHOUSE_CACHE say where files go",
    ),
    (r"(?:.*AccessDeniedException|.*Permission denied)[: ]*(.*)", r"not writable: \1"),
)

_INNERMOST = (r"^Caused by: (.+)$", r"^: (.+)$", r"^(\w[\w.]*(?:Error|Exception)(?:: .+)?)$")
"""Patterns of the first line of a nested error: of one in the JVM, of one that Python got from it, of one in Python."""


def cause_of(error: BaseException) -> str:
    """The most helpful line: that of a known cause, else the first line of the innermost error."""
    text = naming_settings(_told_by(error))
    if found := re.search(_CHECKSUM, text):
        return str(damaged(found[1], DIFFER))
    for pattern, line in _LINES:
        if match := re.search(pattern, text):
            return str(match.expand(line)).strip()
    if found := re.search(_UNREADABLE, text):
        return unreadable(found[1], _innermost(text))
    return _innermost(text) or type(error).__name__


def _innermost(text: str) -> str:
    for pattern in _INNERMOST:
        if causes := re.findall(pattern, text, re.MULTILINE):
            return str(causes[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def is_permanent(error: BaseException) -> bool:
    text = _told_by(error)
    return (
        isinstance(error, PermanentError)
        or any(mark in text for mark in PERMANENT)
        or any(re.search(pattern, text) for pattern in (_PERMANENT_STATES, _TORN_COMMIT, _STUCK, _CHECKSUM))
    )


def is_of_busy_machine(error: BaseException) -> bool:
    """Whether it needs time rather than another try."""
    return re.search(_BUSY_MACHINE, _told_by(error)) is not None


def _told_by(error: BaseException | None) -> str:
    """What an error says, and then each of those in the JVM that led to it: a stream's own error leaves them out."""
    told = []
    while error is not None:
        told.append(str(error))
        error = getattr(error, "_cause", None)
    return re.sub(_CAUSE, ": ", "\n".join(told))
