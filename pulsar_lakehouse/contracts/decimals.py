"""Decimals as Kafka Connect writes them in JSON: a text with the bytes of the number without its point, in base64.

Only the schema that a message was sent with tells where the point is. Here is what that schema makes of its values.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping

from pulsar_lakehouse.contracts.avro_schemas import Avro, Written
from pulsar_lakehouse.contracts.values import Pairs, Value, number_of

Read = Callable[[Value], Value]


def reader_by_avro(schema: str) -> Read | None:
    """What reads the decimals in values of an Avro schema; None if there are none."""
    written = Written(schema)
    return _by_avro(written, written.record, ())


def _by_avro(written: Written, schema: Avro, within: tuple[str, ...]) -> Read | None:
    branches = written.branches(schema)
    if len(branches) != 1:
        return None
    match branches[0]:
        case {"type": "record", "name": str(name), "fields": fields} if name not in within:
            readers = {each["name"]: _by_avro(written, each["type"], (*within, name)) for each in fields}
            return _of_object(readers)
        case {"type": "array", "items": items}:
            return _of_list(_by_avro(written, items, within))
        case {"type": "map", "values": values}:
            return _of_map(_by_avro(written, values, within))
        case {"type": "bytes", "logicalType": "decimal", "connect.name": str(_)} as decimal:
            return _decimal(int(decimal.get("scale", 0)))
    return None


def _decimal(scale: int) -> Read:
    def read(value: Value) -> Value:
        try:
            return number_of(b64decode(value, validate=True), scale) if isinstance(value, str) else value
        except ValueError:
            return value  # as it is, so that a reason can show it

    return read


def _of_object(fields: Mapping[str, Read | None]) -> Read | None:
    readers = {name: read for name, read in fields.items() if read}

    def read(value: Value) -> Value:
        return _mapped(value, lambda name, each: readers[name](each) if name in readers else each)

    return read if readers else None


def _of_map(inner: Read | None) -> Read | None:
    return inner and (lambda value: _mapped(value, lambda _, each: inner(each)))


def _mapped(value: Value, change: Callable[[str, Value], Value]) -> Value:
    """An object with other values; what is no object stays as it is."""
    if isinstance(value, Pairs):
        return Pairs((name, change(name, each)) for name, each in value)
    return {name: change(name, each) for name, each in value.items()} if isinstance(value, dict) else value


def _of_list(inner: Read | None) -> Read | None:
    def read(value: Value) -> Value:
        return [inner(each) for each in value] if inner and isinstance(value, list) else value

    return inner and read
