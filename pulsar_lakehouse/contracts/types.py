"""The types that fields can have, among them those that Spark has no name for: times as numbers, and enums."""

from collections.abc import Iterator
from enum import StrEnum

from pyspark.sql import types as T


class Encoding(StrEnum):
    """How payloads are encoded; the names are those of Pulsar's schema types."""

    JSON = "JSON"
    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    PROTOBUF_NATIVE = "PROTOBUF_NATIVE"
    STRING = "STRING"
    BYTES = "BYTES"


class KeyEncoding(StrEnum):
    """How message keys are written, where no registered KeyValue schema tells it."""

    TEXT = "TEXT"
    """The value as text; several values as a JSON array."""
    JSON = "JSON"
    """A JSON object of the key's fields."""
    BYTES = "BYTES"
    """That text, or that object, as bytes: clients show the key in base64."""
    NONE = "NONE"
    """Nothing of the row's key: only the payload has that."""


class TimestampMillis(T.TimestampType):
    """A time that payloads have as whole milliseconds since 1970, in UTC."""

    @classmethod
    def typeName(cls) -> str:
        return "timestamp"


class TimestampMicros(T.TimestampType):
    """A time that payloads have as whole microseconds since 1970, in UTC."""

    @classmethod
    def typeName(cls) -> str:
        return "timestamp"


class Enum(T.StringType):
    """A text that is one of `values`."""

    def __init__(self, *values: str) -> None:
        super().__init__()
        self.values = values

    def __repr__(self) -> str:
        return f"Enum{self.values!r}"


LEAVES = (
    *(T.BooleanType, T.DoubleType, T.IntegerType, T.LongType, T.StringType, T.DecimalType, T.DateType, T.TimestampType),
    *(TimestampMillis, TimestampMicros, Enum, T.BinaryType),
)
NAMES = (
    "BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DECIMAL(p, s), DATE, TIMESTAMP, TIMESTAMP_MILLIS, TIMESTAMP_MICROS, "
    "ENUM('a', 'b'), STRUCT<...>, ARRAY<...>, MAP<STRING, ...>"
)
"""The types that a field can have, for messages."""


def type_name(kind: T.DataType) -> str:
    """A type as reasons name it, such as `bigint`, `decimal(10,2)` or `struct`."""
    match kind:
        case TimestampMillis():
            return "timestamp_millis"
        case TimestampMicros():
            return "timestamp_micros"
        case T.StructType() | T.ArrayType() | T.MapType():
            return kind.typeName()
    return kind.simpleString()


def in_spark(kind: T.DataType) -> T.DataType:
    """The type with Spark's own types only. All in it can be NULL."""
    match kind:
        case T.StructType():
            return T.StructType([T.StructField(each.name, in_spark(each.dataType)) for each in kind])
        case T.ArrayType():
            return T.ArrayType(in_spark(kind.elementType))
        case T.MapType():
            return T.MapType(in_spark(kind.keyType), in_spark(kind.valueType))
        case T.TimestampType():
            return T.TimestampType()
        case Enum():
            return T.StringType()
    return kind


def wrong_types(kind: T.DataType, path: str) -> Iterator[str]:
    """What is wrong with the type of a field, or of one in it: a line for each mistake."""
    match kind:
        case T.StructType():
            if not kind.fields:
                yield f"{path} has no fields"
            yield from _twice(kind, path)
            for field in kind:
                yield from wrong_types(field.dataType, f"{path}.{field.name}")
        case T.ArrayType():
            yield from wrong_types(kind.elementType, f"{path}[]")
        case T.MapType(keyType=T.StringType()):
            yield from wrong_types(kind.valueType, f"{path}[]")
        case Enum() if not kind.values or len({*kind.values}) < len(kind.values):
            yield f"{path} is an ENUM of {', '.join(map(repr, kind.values)) or 'nothing'}: must be texts, each once"
        case _ if type(kind) not in LEAVES:
            yield f"{path} is {kind.simpleString()}: must be one of {NAMES}"


def names_twice(kind: T.DataType, path: str) -> Iterator[str]:
    """A line for each struct, in a column of this type, that has one name twice."""
    match kind:
        case T.StructType():
            yield from _twice(kind, path)
            for field in kind:
                yield from names_twice(field.dataType, f"{path}.{field.name}")
        case T.ArrayType():
            yield from names_twice(kind.elementType, f"{path}[]")
        case T.MapType():
            yield from names_twice(kind.valueType, f"{path}[]")


def _twice(kind: T.StructType, path: str) -> Iterator[str]:
    names = [field.name.lower() for field in kind]
    if twice := [name for name in names if names.count(name) > 1]:
        yield f"{path} has {twice[0]} twice, as SQL does not tell upper from lower case"
