"""The Avro schemas of topics: as they are made from fields, and compared with the declaration."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql import types as T

from pulsar_lakehouse.contracts.types import Encoding, Enum, TimestampMicros, TimestampMillis
from pulsar_lakehouse.errors import ConfigurationError

Avro = Any
"""An Avro schema: the name of a type, a dict, or a list of those."""
Leaf = Callable[[str, T.DataType], Avro]

PRIMITIVES: Mapping[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.DoubleType: "double",
    T.IntegerType: "int",
    T.LongType: "long",
    T.StringType: "string",
}
PROMOTED: Mapping[str, tuple[str, ...]] = {
    "boolean": ("boolean",),
    "double": ("int", "long", "float", "double"),
    "int": ("int",),
    "long": ("int", "long"),
    "string": ("string", "enum"),
    "bytes": ("bytes", "fixed"),
}
"""By declared type, the types that can be read as it."""
TIMES: Mapping[type[T.DataType], str] = {TimestampMillis: "timestamp-millis", TimestampMicros: "timestamp-micros"}
VARIABLE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
"""The record of a decimal, each with the place of its point."""
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _published(name: str, kind: T.DataType) -> Avro:
    """The type of a value in a message that this pipeline publishes."""
    match kind:
        case T.TimestampType():
            return {"type": "long", "logicalType": "timestamp-millis"}
        case T.DateType():
            return {"type": "int", "logicalType": "date"}
        case T.DecimalType():
            return "string"  # to stay exact: most readers parse a JSON number as a double
    if type(kind) not in PRIMITIVES:
        raise ConfigurationError(f"{name} is {kind.simpleString()}, which has no Avro type here")
    return PRIMITIVES[type(kind)]


def avro_record(name: str, fields: T.StructType, leaf: Leaf = _published) -> dict[str, Any]:
    """The fields as an Avro record. A nested struct becomes a record named after its parent and its field."""

    def of(column: T.StructField) -> dict[str, Any]:
        kind = _avro(_within(name, column), column.dataType, leaf)
        if not column.nullable:
            return {"name": column.name, "type": kind}
        return {"name": column.name, "type": ["null", kind], "default": None}

    return {"type": "record", "name": name, "fields": [of(column) for column in fields]}


def _within(name: str, column: T.StructField) -> str:
    return f"{name}{column.name.title().replace('_', '')}"


def _avro(name: str, kind: T.DataType, leaf: Leaf) -> Avro:
    match kind:
        case T.StructType():
            return avro_record(name, kind, leaf)
        case T.ArrayType():
            items = _avro(name, kind.elementType, leaf)
            return {"type": "array", "items": ["null", items] if kind.containsNull else items}
        case T.MapType():
            values = _avro(name, kind.valueType, leaf)
            return {"type": "map", "values": ["null", values] if kind.valueContainsNull else values}
    return leaf(name, kind)


def topic_record(name: str, fields: T.StructType, encoding: Encoding) -> dict[str, Any]:
    """The record that Pulsar registers for a topic with these fields."""
    return avro_record(name, fields, lambda within, kind: _declared(within, kind, encoding))


def _declared(name: str, kind: T.DataType, encoding: Encoding) -> Avro:
    is_avro = encoding is Encoding.AVRO
    match kind:
        case TimestampMillis() | TimestampMicros():
            return {"type": "long", "logicalType": TIMES[type(kind)]}
        case T.DateType() if is_avro:
            return {"type": "int", "logicalType": "date"}
        case T.DecimalType() if is_avro:
            return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        case T.BinaryType():
            return "bytes"
        case Enum() if all(SYMBOL.fullmatch(value) for value in kind.values):
            return {"type": "enum", "name": name, "symbols": list(kind.values)}
    return PRIMITIVES.get(type(kind), "string")


def record_name(schema: str) -> str:
    """The name of the record of a schema, without its namespace; empty if it is none."""
    try:
        record = json.loads(schema)
    except ValueError:
        return ""
    return str(record.get("name", "")).rpartition(".")[2] if isinstance(record, dict) else ""


class Written:
    """An Avro schema that messages are written with."""

    def __init__(self, schema: str) -> None:
        self._named: dict[str, Avro] = {}
        self.record = self._with_full_names(json.loads(schema), "")

    @property
    def names(self) -> list[str]:
        """The names of the record's fields. There are none in schemas of old clients, which are not records."""
        return list(_fields(self.record))

    def differences(self, fields: T.StructType, encoding: Encoding) -> list[str]:
        """Why what is written breaks the contract: a line for each field that differs."""
        return list(self._missing_or_other(self.record, fields, encoding, ""))

    def _missing_or_other(self, record: Avro, fields: T.StructType, encoding: Encoding, within: str) -> Iterator[str]:
        written = _fields(record)
        for field in fields:
            path = f"{within}{field.name}"
            if field.name in written:
                yield from self._other(written[field.name], field.dataType, encoding, path)
            elif not field.nullable:
                yield f"{path} is not registered, but declared as a required {_word(field.dataType, encoding)}"

    def _other(self, schema: Avro, kind: T.DataType, encoding: Encoding, path: str) -> Iterator[str]:
        branches = self.branches(schema)
        one = branches[0] if len(branches) == 1 else {}
        match kind, one:
            case T.StructType(), {"type": "record"}:
                yield from self._missing_or_other(one, kind, encoding, f"{path}.")
            case T.ArrayType(), {"type": "array", "items": items}:
                yield from self._other(items, kind.elementType, encoding, f"{path}[]")
            case T.MapType(), {"type": "map", "values": values}:
                yield from self._other(values, kind.valueType, encoding, f"{path}[]")
            case _ if not _are_readable(branches, kind, encoding):
                registered = " or ".join(map(_word_of, branches))
                yield f"{path} is registered as {registered}, but declared as {_word(kind, encoding)}"

    def branches(self, schema: Avro) -> list[dict[str, Any]]:
        """The types that a value can have, without null."""
        match schema:
            case list():
                return [branch for each in schema for branch in self.branches(each)]
            case str():
                return [self._named.get(schema, {"type": schema})] if schema != "null" else []
        return [schema]

    def _with_full_names(self, schema: Avro, namespace: str) -> Avro:
        """The schema in which each name is a full one. A dict that only holds another type is replaced by that type."""
        match schema:
            case list():
                return [self._with_full_names(each, namespace) for each in schema]
            case str():
                return full if (full := f"{namespace}.{schema}") in self._named else schema
            case {"type": "record" | "enum" | "fixed", "name": str(name)}:
                namespace = name.rpartition(".")[0] or schema.get("namespace", namespace)
                full = name if "." in name or not namespace else f"{namespace}.{name}"
                whole = {key: value for key, value in schema.items() if key != "namespace"} | {"name": full}
                self._named[full] = whole
                for field in schema.get("fields", ()):
                    field["type"] = self._with_full_names(field["type"], namespace)
                return whole
            case {"type": "array", "items": items}:
                return {"type": "array", "items": self._with_full_names(items, namespace)}
            case {"type": "map", "values": values}:
                return {"type": "map", "values": self._with_full_names(values, namespace)}
            case {"type": str(kind)}:
                return schema if (full := self._with_full_names(kind, namespace)) not in self._named else full
            case {"type": inner}:
                return self._with_full_names(inner, namespace)
        return schema


def _fields(record: Avro) -> dict[str, Avro]:
    return {field["name"]: field["type"] for field in record.get("fields", ())}


def _are_readable(branches: list[dict[str, Any]], kind: T.DataType, encoding: Encoding) -> bool:
    """Whether values of these types can be read as a type that holds no others."""
    own = [each for each in branches if each["type"] == "enum" or each.get("logicalType") == "decimal"]
    if encoding is Encoding.AVRO and own and len(branches) > 1:
        return False  # Spark makes a struct of such a union
    return all(_is_readable(each, kind, encoding) for each in branches)


def _is_readable(branch: dict[str, Any], kind: T.DataType, encoding: Encoding) -> bool:
    written, logical = branch["type"], branch.get("logicalType")
    match kind:
        case TimestampMillis() | TimestampMicros():
            return written in PROMOTED["long"] and logical in (None, TIMES[type(kind)])
        case T.DateType():
            return (written == "int" and logical in (None, "date")) or (
                encoding is Encoding.JSON and written == "string"
            )
        case T.DecimalType():
            is_number = encoding is Encoding.JSON and written in PROMOTED["double"]
            return is_number or written == "string" or logical == "decimal" or branch.get("name") == VARIABLE_DECIMAL
        case T.TimestampType():
            return bool(written == "string")
        case Enum():
            return written in PROMOTED["string"]
        case T.BinaryType():
            return written in PROMOTED["bytes"] and logical is None
    return written in PROMOTED.get(PRIMITIVES.get(type(kind), ""), ())


def _word(kind: T.DataType, encoding: Encoding) -> str:
    """The Avro type of a declared type, as messages name it."""
    declared = _avro("", kind, lambda name, leaf: _declared(name, leaf, encoding))
    return _word_of(declared if isinstance(declared, dict) else {"type": declared})


def _word_of(branch: dict[str, Any]) -> str:
    logical = branch.get("logicalType")
    return f"{branch['type']} ({logical})" if logical else str(branch["type"])
