import pytest

from cli.extras import require_extra
from lakehouse.errors import ConfigurationError


def test_what_is_installed_passes() -> None:
    require_extra("quality", "great_expectations")


def test_what_is_not_installed_is_named() -> None:
    error = r"^no_such_module is not installed: pip install 'pulsar-lakehouse\[quality\]'$"
    with pytest.raises(ConfigurationError, match=error):
        require_extra("quality", "no_such_module")
