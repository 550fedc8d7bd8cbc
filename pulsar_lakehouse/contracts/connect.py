"""Kafka Connect's JSON converter, which may write the schema of each value beside it."""

import json
from functools import lru_cache
from typing import Any, NamedTuple

from pulsar_lakehouse.contracts.avro_schemas import Avro
from pulsar_lakehouse.contracts.decimals import Read, reader_by_avro
from pulsar_lakehouse.contracts.values import NotReadableError, Pairs, Value, as_text, shown

TYPES = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double"}
TYPES |= {each: each for each in ("boolean", "string", "bytes", "float", "double")}
"""By the names of Connect's types, those of Avro."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
LONGEST = 38
"""Digits of a decimal whose schema does not say how many it has."""


class Wrapped(NamedTuple):
    schema: Value
    payload: Value


def wrapped(value: Value) -> Wrapped | None:
    """The schema and the payload that the converter wraps in an object; None if this is no such object."""
    if isinstance(value, Pairs | dict) and len(value) == 2 and (parts := dict(value)).keys() == {"schema", "payload"}:
        return Wrapped(parts["schema"], parts["payload"])
    return None


def unwrapped(value: Value) -> Value:
    """A value without the wrapping with its schema, which may tell where the points of decimals are.

    Raises NotReadableError if that schema is none.
    """
    found = wrapped(value)
    if found is None:
        return value
    read = _reader(as_text(found.schema))
    return read(found.payload) if read else found.payload


@lru_cache(maxsize=256)
def _reader(schema: str) -> Read | None:
    try:
        return reader_by_avro(json.dumps(avro_of(json.loads(schema))))
    except (ValueError, TypeError, LookupError, AttributeError):  # by what is wrong with the schema
        raise NotReadableError(f"the schema beside the payload can't be read: {shown(schema)}") from None


def avro_of(schema: Any, within: str = "") -> Avro:
    """The Avro schema that Connect's Avro converter would register. Records without a name have that of their place."""
    if not isinstance(schema, dict):
        return "null"
    kind, name = schema.get("type"), schema.get("name")
    named = {"connect.name": name} if name else {}
    found: Avro = {"type": TYPES.get(str(kind), "null"), **named}
    if kind == "struct":
        found = {"type": "record", "name": name or f"{within}Value", **named}
        found["fields"] = [
            {"name": each["field"], "type": avro_of(each, f"{within}{each['field']}.")}
            for each in schema.get("fields") or ()
        ]
    elif kind == "array":
        found = {"type": "array", "items": avro_of(schema.get("items"), within)}
    elif kind == "map":
        found = {"type": "map", "values": avro_of(schema.get("values"), within)}
    elif name == DECIMAL:
        parameters = schema.get("parameters") or {}
        precision = int(parameters.get("connect.decimal.precision", LONGEST))
        found |= {"logicalType": "decimal", "precision": precision, "scale": int(parameters.get("scale", 0))}
    elif name in LOGICAL:
        found |= {"logicalType": LOGICAL[name]}
    return ["null", found] if schema.get("optional") in (True, None) else found
