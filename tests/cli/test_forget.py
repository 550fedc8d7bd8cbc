"""`lakehouse forget`: what it refuses before Spark starts. What it erases is in tests/jobs/test_forget.py."""

import re

import pytest

from pulsar_lakehouse.cli.forget import forget_command
from pulsar_lakehouse.errors import ConfigurationError


@pytest.mark.parametrize(
    ("person", "line"),
    [
        ("users", "users: must be one of items, users and a key, such as "),
        ("orders:1", "orders:1: must be one of items, users and a key, such as "),
        ("users:Ada", "users:Ada: a key of users is a BIGINT, such as users:123"),
    ],
)
def test_what_is_no_key_is_refused(person: str, line: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(line)}"):
        forget_command(person, approve=True)
