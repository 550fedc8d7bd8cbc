"""The errors that a user can see. Each message is one line that names the bad value and what would be right."""

import re
from collections.abc import Sequence

OPTION = re.compile(r"\boption ((?:token|oauth2|tls)\w*)")
"""Matches an option of the Pulsar source that is also a setting, such as `option tokenFile`."""

NOTHING_NEW = 99
"""The exit code of a step that was told to end if nothing is new, and did. It is no failure."""


class LakehouseError(Exception):
    """An expected failure: the command line prints its message without a stack trace and exits with `exit_code`."""

    exit_code = 1


class PermanentError(LakehouseError):
    """A retry would fail in the same way: somebody has to fix something first."""

    exit_code = 78
    """EX_CONFIG of sysexits.h."""


class ConfigurationError(PermanentError):
    """A setting, an option or a declaration is wrong."""


class DeclarationsError(ConfigurationError):
    """All that is wrong with a project's declarations: a line for each mistake, with file, line and name."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class BrokerError(LakehouseError):
    """The broker can't be started or reached, or can't do what it was asked to do."""


class SourceError(LakehouseError):
    """A source can't be read, or its snapshot is not taken. Its state stays as it is, and all else goes on."""

    def __init__(self, line: str, *, landed: int = 0) -> None:
        super().__init__(line)
        self.landed = landed
        """The messages that landed all the same: the answers of a service."""


class UnreachableError(BrokerError):
    """The broker does not answer."""


class RefusedError(BrokerError, PermanentError):
    """The broker rejects our token, or we reject its certificate: neither waiting nor a retry helps."""


class BusyError(LakehouseError):
    """Another process is writing what this one wants to write."""

    exit_code = 75
    """EX_TEMPFAIL of sysexits.h: try again later."""


class NotYetError(LakehouseError):
    """What was waited for has not come."""

    exit_code = 75
    """EX_TEMPFAIL of sysexits.h: try again later."""


class ReconciliationError(LakehouseError):
    """Rows were lost, are in two places, or are not those of the database that they are from."""


class QualityError(PermanentError):
    """A critical rule of a table failed, or a rule could not be evaluated."""


def naming_settings(line: str) -> str:
    """A line of the Pulsar source with settings in place of its options: `pulsar.token_file` for `option tokenFile`."""
    return OPTION.sub(lambda found: "pulsar." + re.sub("(?=[A-Z])", "_", found[1]).lower(), line)
