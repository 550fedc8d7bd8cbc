"""The errors a user can meet. Each message is one line that names the value and what would be right."""


class LakehouseError(Exception):
    """An expected failure: the command line prints its message, without a stack trace, and exits with its code."""

    exit_code = 1


class PermanentError(LakehouseError):
    """Another try would meet it again: somebody has to do something first."""

    exit_code = 78
    """As sysexits.h has it for what is not configured as it must be."""


class ConfigurationError(PermanentError):
    """A setting or a declaration is wrong; nothing was started."""


class BrokerError(LakehouseError):
    """The broker can't be started, reached, or does not have what was asked of it."""


class RefusedError(BrokerError, PermanentError):
    """The broker refuses us, or we its certificate: it is no use to wait, or to try again."""


class BusyError(LakehouseError):
    """Another process holds what this one wants to write."""

    exit_code = 75
    """As sysexits.h has it for what can be tried again later."""


class ConservationError(LakehouseError):
    """Tables and topics do not add up: rows were lost, or are in two places."""


class QualityError(LakehouseError):
    """A critical rule of a table does not pass."""
