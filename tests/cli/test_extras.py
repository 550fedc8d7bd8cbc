import pytest

from pulsar_lakehouse.cli.extras import require_extra
from pulsar_lakehouse.errors import ConfigurationError


def test_what_is_installed_passes() -> None:
    require_extra("quality", "great_expectations")


def test_what_is_not_installed_is_named() -> None:
    error = "^no_such_module is not installed: it is the extra `quality`, which `make install` installs in a clone$"
    with pytest.raises(ConfigurationError, match=error):
        require_extra("quality", "no_such_module")
