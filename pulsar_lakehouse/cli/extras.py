"""Extras of this package: dependencies that are only installed on request."""

from importlib.util import find_spec

from pulsar_lakehouse.errors import ConfigurationError


def require_extra(extra: str, module: str) -> None:
    """Raises ConfigurationError, which says how to install the extra, if its `module` is not installed."""
    if find_spec(module) is None:
        raise ConfigurationError(
            f"{module} is not installed: it is the extra `{extra}`, which `make install` installs in a clone"
        )
