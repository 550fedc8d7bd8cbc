"""Messages as people write them: an object with a payload, and perhaps a key and an event time, a line each."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.produce import Message

NAMES = ("key", "event_time", "payload")
SUCH_AS = '{"key": "1", "event_time": "2026-01-31T12:00:00Z", "payload": {"id": 1}}'


def read_lines(lines: Iterable[str], name: str) -> Iterator[Message]:
    """The message of each line that is not empty. Raises ConfigurationError, with `name` and line, for a wrong one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield message_of(json.loads(line, parse_float=Decimal, parse_constant=_refuse))
            except ValueError as error:
                raise ConfigurationError(f"{name}:{number}: not JSON: {error}") from None
            except ConfigurationError as error:
                raise ConfigurationError(f"{name}:{number}: {error}") from None


def message_of(given: Any) -> Message:
    """The message that `given` describes, such as `{"key": "1", "payload": {"id": 1}}`.

    A payload of None makes a tombstone. The event time is ISO 8601, in UTC unless it says otherwise. Raises
    ConfigurationError for any other object.
    """
    if not isinstance(given, dict) or "payload" not in given:
        raise ConfigurationError(f"must be an object with a payload, such as {SUCH_AS}")
    for name, value in given.items():
        if name not in NAMES:
            raise ConfigurationError(f"{name}: must be one of {', '.join(NAMES)}")
        if name != "payload" and not isinstance(value, str):
            raise ConfigurationError(f"{name}: {json_text(value)}: must be a text, as in {SUCH_AS}")
    payload = given["payload"]
    return Message(
        key=given.get("key", ""),
        payload=None if payload is None else json_text(payload).encode(),
        event_time=epoch_millis_of(given["event_time"]) if "event_time" in given else 0,
    )


def json_text(value: Any) -> str:
    """The value as JSON. A Decimal is a number with all of its digits."""
    match value:
        case dict():
            return f"{{{', '.join(f'{json.dumps(name)}: {json_text(each)}' for name, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(json_text, value))}]"
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=False)


def epoch_millis_of(text: str) -> int:
    """Raises ConfigurationError for a text that is no time in ISO 8601."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"event_time: {text}: must be a time such as 2026-01-31T12:00:00Z") from None
    millis = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if millis <= 0:
        raise ConfigurationError(f"event_time: {text}: must be after 1970-01-01T00:00:00Z")
    return millis


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number in JSON")
