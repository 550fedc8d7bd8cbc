"""Parses payloads that are one value, as Pulsar's primitive schemas write it.

Source: the classes of org.apache.pulsar.client.impl.schema, such as IntSchema and InstantSchema.
"""

import struct
from collections.abc import Callable, Mapping

from pulsar_lakehouse.contracts.values import Days, Micros, Millis, NotReadableError, Value

DAY = 86_400_000_000
"""Microseconds of a day."""


def _number(layout: str) -> Callable[[bytes], Value]:
    return lambda payload: struct.unpack(f">{layout}", payload)[0]


def _instant(payload: bytes) -> Value:
    seconds, nanos = struct.unpack(">qi", payload)
    return Micros(seconds * 1_000_000 + nanos // 1000)


def _local_date_time(payload: bytes) -> Value:
    day, nanos = struct.unpack(">qq", payload)
    return Micros(day * DAY + nanos // 1000)


PRIMITIVES: Mapping[str, Callable[[bytes], Value]] = {
    "STRING": bytes.decode,
    "BYTES": bytes,
    "BOOLEAN": lambda payload: struct.unpack(">b", payload)[0] != 0,
    "INT8": _number("b"),
    "INT16": _number("h"),
    "INT32": _number("i"),
    "INT64": _number("q"),
    "FLOAT": _number("f"),
    "DOUBLE": _number("d"),
    "DATE": lambda payload: Millis(struct.unpack(">q", payload)[0]),
    "TIMESTAMP": lambda payload: Millis(struct.unpack(">q", payload)[0]),
    "TIME": _number("q"),
    "INSTANT": _instant,
    "LOCAL_DATE": lambda payload: Days(struct.unpack(">q", payload)[0]),
    "LOCAL_TIME": _number("q"),
    "LOCAL_DATE_TIME": _local_date_time,
}
"""By the name of the schema's type."""


def parse_primitive(payload: bytes, kind: str) -> Value:
    """The value of a payload. Raises NotReadableError."""
    try:
        return PRIMITIVES[kind](payload)
    except struct.error:
        raise NotReadableError(f"no {kind}: it has {len(payload):,} bytes") from None
    except UnicodeDecodeError as error:
        raise NotReadableError(f"not UTF-8 at byte {error.start}") from None
