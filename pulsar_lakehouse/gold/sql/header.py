"""Read the header of a SQL file: the comments before its SELECT that declare something."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

from pulsar_lakehouse.contracts.checks import Check, Mode, wrong_with
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.sql.parsing import literal
from pulsar_lakehouse.near import did_you_mean
from pulsar_lakehouse.tables.declared import NAME
from pulsar_lakehouse.terminal import shown

INCREMENTAL, FULL = "incremental", "full"
TOPIC, POSTGRES = "topic", "postgres"
CHECK, PARAMETER, PUBLISH = "check", "parameter", "publish"
ONCE = ("keys", "refresh", PUBLISH)
KINDS = (*ONCE, CHECK, PARAMETER)
GONE = "sources"
"""What 0.1.0 had, too."""
A_LITERAL = "must be a literal, such as 1, 'none' or DATE '2026-01-01'"

_LINE = re.compile(r"--\s*(\w+)(?:\s+(\w+))?(?:\s*\((\w+)\))?:\s*(.*?)\s*")


@dataclass(frozen=True)
class Header:
    keys: tuple[str, ...]
    refresh: str
    published: dict[str, str]
    """The name of the topic or the table in Postgres, by kind."""
    checks: dict[str, Check]
    parameters: dict[str, str]
    """By name, a literal in SQL."""


@dataclass(frozen=True)
class _Entry:
    """A line `-- kind name (mode): text`. Only checks and parameters have a name, and only checks may have a mode."""

    at: str
    """File and line."""
    kind: str
    name: str
    mode: str
    text: str

    def wrong(self, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self.at}: {reason}")


def read_header(file: Path, sql: str) -> Header:
    """Raises ConfigurationError, with file and line, for what is missing, unknown, wrong or given twice."""
    entries = list(_entries(file, sql))
    once = {entry.kind: entry for entry in entries if entry.kind in ONCE}
    for kind in ONCE[:2]:
        if kind not in once:
            missing = f"`-- {kind}: ...` is missing in the header"
            lines = takewhile(lambda line: line.startswith("--"), sql.splitlines())
            near = [number for number, line in enumerate(lines, 1) if re.match(rf"--\s*{kind}\b(?!\s*:)", line)]
            why = f": line {near[0]} has no colon after {kind}" if near else ""
            raise ConfigurationError(f"{shown(file)}:{(near or [1])[0]}: {missing}{why}")
    refresh = once["refresh"]
    if refresh.text not in (INCREMENTAL, FULL):
        raise refresh.wrong(f"refresh: {refresh.text}: must be {INCREMENTAL} or {FULL}")
    return Header(
        keys=_keys(once["keys"]),
        refresh=refresh.text,
        published=_published(once[PUBLISH]) if PUBLISH in once else {},
        checks={entry.name: _check(entry) for entry in entries if entry.kind == CHECK},
        parameters={entry.name: _parameter(entry) for entry in entries if entry.kind == PARAMETER},
    )


def _entries(file: Path, sql: str) -> Iterator[_Entry]:
    seen: set[tuple[str, str]] = set()
    for number, text in enumerate(sql.splitlines(), 1):
        if not text.startswith("--"):
            return
        line = _LINE.fullmatch(text)
        # Other comments are for the reader, unless they look like a header with a typo.
        if line and (not line[2] or get_close_matches(line[1], KINDS, n=1, cutoff=0.8)):
            entry = _Entry(f"{shown(file)}:{number}", *(part or "" for part in line.groups()))
            _refuse_form(entry)
            if (entry.kind, entry.name) in seen:
                raise entry.wrong(f"{entry.kind} {entry.name}".strip() + " is given twice")
            seen.add((entry.kind, entry.name))
            yield entry


def _refuse_form(entry: _Entry) -> None:
    if entry.kind == GONE:
        raise entry.wrong(f"{GONE}: gone since 0.1.0: remove the line; the sources are those that the SELECT reads")
    if entry.kind not in KINDS:
        raise entry.wrong(f"{entry.kind}: unknown; must be one of {', '.join(KINDS)}{did_you_mean(entry.kind, KINDS)}")
    if entry.kind in ONCE and (entry.name or entry.mode):
        raise entry.wrong(f"{entry.kind}: must be `-- {entry.kind}: ...`")
    if entry.kind == CHECK and not entry.name:
        raise entry.wrong("check: must be `-- check NAME: SQL`, or `-- check NAME (MODE): SQL`")
    if entry.kind == PARAMETER and (not entry.name or entry.mode):
        raise entry.wrong("parameter: must be `-- parameter NAME: VALUE`")


def _keys(entry: _Entry) -> tuple[str, ...]:
    names = tuple(name.strip() for name in entry.text.split(","))
    for name in names:
        if not NAME.fullmatch(name):
            raise entry.wrong(f"{name or 'nothing'}: must be columns such as category, window_start")
    return names


def _published(entry: _Entry) -> dict[str, str]:
    parts = [re.fullmatch(rf"({TOPIC}|{POSTGRES}) ([\w.-]+)", part.strip()) for part in entry.text.split(",")]
    given = {part[1]: part[2] for part in parts if part}
    if len(given) < len(parts):
        raise entry.wrong(f"publish: {entry.text}: must be `topic NAME`, `postgres TABLE`, or both")
    return given


def _check(entry: _Entry) -> Check:
    modes = list(Mode)
    if entry.mode and entry.mode not in modes:
        raise entry.wrong(f"check {entry.name} ({entry.mode}): must be {', '.join(modes[:-1])} or {modes[-1]}")
    check = Check(entry.text, Mode(entry.mode or Mode.WARN))
    if wrong := wrong_with(entry.name, check):
        raise entry.wrong(wrong)
    return check


def _parameter(entry: _Entry) -> str:
    if literal(entry.text) is None:
        raise entry.wrong(f"parameter {entry.name}: {entry.text or 'nothing'}: {A_LITERAL}")
    return entry.text
