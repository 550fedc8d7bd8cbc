from decimal import Decimal
from typing import Any

import pytest

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.message_lines import message_of, read_lines
from pulsar_lakehouse.pulsar.produce import Message


def test_a_line_is_a_message() -> None:
    lines = [
        '{"key": "1", "event_time": "2026-01-31T12:00:00Z", "payload": {"id": 1, "tags": ["ü", null]}}',
        "",
        '{"payload": {"price": 12345678901234567.890}}',
        '{"key": "1", "event_time": "2026-01-31T12:00:00.250", "payload": null}',
    ]
    assert list(read_lines(lines, "some.jsonl")) == [
        Message("1", '{"id": 1, "tags": ["ü", null]}'.encode(), 1769860800000),
        Message("", b'{"price": 12345678901234567.890}', 0),
        Message("1", None, 1769860800250),
    ]


def test_a_decimal_keeps_its_digits() -> None:
    assert message_of({"payload": {"price": Decimal("0.10")}}).payload == b'{"price": 0.10}'


SUCH_AS = '{"key": "1", "event_time": "2026-01-31T12:00:00Z", "payload": {"id": 1}}'


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('{"id": 1}', f"must be an object with a payload, such as {SUCH_AS}"),
        ("7", f"must be an object with a payload, such as {SUCH_AS}"),
        ('{"payload": 1, "id": 1}', "id: must be one of key, event_time, payload"),
        ('{"payload": 1, "key": 1}', f"key: 1: must be a text, as in {SUCH_AS}"),
        ('{"payload": 1, "event_time": "noon"}', "event_time: noon: must be a time such as 2026-01-31T12:00:00Z"),
    ],
)
def test_a_wrong_line(line: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        list(read_lines(['{"payload": 1}', line], "some.jsonl"))
    assert str(error.value) == f"some.jsonl:2: {problem}"
