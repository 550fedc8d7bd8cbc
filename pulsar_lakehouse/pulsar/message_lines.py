"""Messages as people write them: an object with a payload, and perhaps a key and more, a line each."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

from _pulsar import SchemaType
from fastavro import parse_schema, schemaless_writer

from pulsar_lakehouse.bronze.pulsar.reading import LAST_MILLISECOND
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pulsar.produce import Message, MessageSchema, own_schema

NAMES = ("key", "key_bytes", "event_time", "properties", "schema", "payload", "payload_bytes")
SUCH_AS = '{"key": "1", "event_time": "2026-01-31T12:00:00Z", "payload": {"id": 1}}'
SCHEMA_SUCH_AS = '{"type": "AVRO", "schema": "...", "properties": {}}'
TYPES = tuple(name for name in SchemaType.__members__ if not name.startswith("AUTO_") and name != "NONE")
AS_JSON = "JSON", "STRING", "BYTES"
"""The schema types under which a payload that is a JSON value is sent as its text."""


def read_lines(lines: Iterable[str], name: str, topic: Topic) -> Iterator[Message]:
    """The message of each line that is not empty. Raises ConfigurationError, with `name` and line, for a wrong one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield message_of(json.loads(line, parse_float=Decimal, parse_constant=_refuse), topic)
            except (ValueError, RecursionError) as error:
                raise ConfigurationError(f"{name}:{number}: not JSON: {error}") from None
            except ConfigurationError as error:
                raise ConfigurationError(f"{name}:{number}: {error}") from None


def message_of(given: Any, topic: Topic) -> Message:
    """The message that `given` describes, such as `{"key": "1", "payload": {"id": 1}}`.

    A payload of None makes a tombstone. Others are written as the schema says: as JSON, or as an Avro record.
    `payload_bytes` and `key_bytes` are base64, and stand for these bytes. The event time is ISO 8601, in UTC unless it
    says otherwise. Raises ConfigurationError for any other object.
    """
    if not isinstance(given, dict) or len({"payload", "payload_bytes"} & given.keys()) != 1:
        raise ConfigurationError(f"must be an object with a payload, such as {SUCH_AS}")
    for name in given:
        if name not in NAMES:
            raise ConfigurationError(f"{name}: must be one of {', '.join(NAMES)}")
    schema = _schema_of(given["schema"]) if "schema" in given else None
    return Message(
        key=_key_of(given),
        payload=_payload_of(given, schema or own_schema(topic)),
        event_time=epoch_millis_of("event_time", given["event_time"]) if "event_time" in given else 0,
        properties=_texts_of("properties", given["properties"]) if "properties" in given else None,
        schema=schema,
    )


def _key_of(given: Mapping[str, Any]) -> str:
    """The key as clients show it: that of bytes is their base64 text."""
    if "key_bytes" not in given:
        return _text_of("key", given.get("key", ""))
    if "key" in given:
        raise ConfigurationError("key_bytes: a message has one key: remove this or key")
    return base64.b64encode(_bytes_of("key_bytes", given["key_bytes"])).decode()


def _payload_of(given: Mapping[str, Any], schema: MessageSchema) -> bytes | None:
    if "payload_bytes" in given:
        return _bytes_of("payload_bytes", given["payload_bytes"])
    payload = given["payload"]
    if payload is None:
        return None
    if schema.type in AS_JSON:
        return _text_of("payload", json_text(payload)).encode()
    if schema.type == "AVRO":
        return _avro(payload, schema.data)
    raise ConfigurationError(f"payload: with a schema of type {schema.type}, write it as payload_bytes, in base64")


def _avro(payload: Any, schema: str) -> bytes:
    """The payload as an Avro record. A number with a fraction is a double, unless the schema has decimals."""
    written = BytesIO()
    try:
        schemaless_writer(
            written, parse_schema(json.loads(schema)), payload if '"decimal"' in schema else _floats(payload)
        )
    except Exception as error:  # the library has many
        raise ConfigurationError(f"payload: can't be written with the schema {schema}: {error!r}") from None
    return written.getvalue()


def _floats(value: Any) -> Any:
    match value:
        case dict():
            return {name: _floats(each) for name, each in value.items()}
        case list():
            return [_floats(each) for each in value]
        case Decimal():
            return float(value)
    return value


def _schema_of(given: Any) -> MessageSchema:
    """The schema that `given` describes, as the admin API does. Raises ConfigurationError if it is not one."""
    if not isinstance(given, dict) or "type" not in given or given.keys() - {"type", "schema", "properties"}:
        raise ConfigurationError(f"schema: {json_text(given)}: must be such as {SCHEMA_SUCH_AS}")
    if given["type"] not in TYPES:
        raise ConfigurationError(f"schema: type: {given['type']}: must be one of {', '.join(TYPES)}")
    data = given.get("schema", "")
    properties = _texts_of("schema: properties", given.get("properties", {}))
    text = _text_of("schema: schema", data if isinstance(data, str) else json_text(data))
    return MessageSchema(given["type"], text, tuple(sorted(properties.items())))


def _text_of(name: str, value: Any) -> str:
    if not _is_text(value):
        raise ConfigurationError(f"{name}: {json_text(value)}: must be a text, as in {SUCH_AS}")
    return str(value)


def _is_text(value: Any) -> bool:
    """Whether it is a text that UTF-8 can encode, as it can't half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _texts_of(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(map(_is_text, (*value, *value.values()))):
        raise ConfigurationError(f'{name}: {json_text(value)}: must be an object of texts, such as {{"sent-by": "me"}}')
    return value


def _bytes_of(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(_text_of(name, value), validate=True)
    except ValueError:
        raise ConfigurationError(f"{name}: {value}: must be base64, such as aGVsbG8=") from None


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


def epoch_millis_of(name: str, value: Any) -> int:
    """Raises ConfigurationError for what is no time in ISO 8601. `name` is that of the time."""
    try:
        time = datetime.fromisoformat(_text_of(name, value))
    except ValueError:
        raise ConfigurationError(f"{name}: {value}: must be a time such as 2026-01-31T12:00:00Z") from None
    millis = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if not 0 < millis <= LAST_MILLISECOND:
        raise ConfigurationError(f"{name}: {value}: must be after 1970-01-01T00:00:00Z, and before the year 10000")
    return millis


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number in JSON")
