"""Declares topics: their typed fields, and the schema that Pulsar registers for them."""

import json
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakehouse.contracts.arguments import checked
from lakehouse.contracts.ddl import parse_fields
from lakehouse.errors import ConfigurationError

AVRO_TYPES: Mapping[type[DataType], str] = {
    BooleanType: "boolean",
    DoubleType: "double",
    IntegerType: "int",
    LongType: "long",
    StringType: "string",
}


class Encoding(StrEnum):
    """How payloads are encoded; the names are those of Pulsar's schema types."""

    JSON = "JSON"
    AVRO = "AVRO"


MINIMUM, MAXIMUM = "minimum", "maximum"
"""Keys of a field's metadata: the least and the greatest value, both included."""


def epoch_millis(name: str, *, nullable: bool = True) -> StructField:
    """A field with a time in epoch milliseconds, in the years 1 to 9999, the range of times in SQL and Python."""
    return StructField(name, LongType(), nullable, {MINIMUM: -62_135_596_800_000, MAXIMUM: 253_402_300_799_999})


class Fields:
    """The fields of a topic: a StructType, which can be given as DDL text."""

    accepts = StructType | str

    def __get__(self, topic: "Topic | None", owner: type["Topic"]) -> StructType:
        if topic is None:
            raise AttributeError("fields")  # so that a dataclass finds no default
        fields: StructType = topic.__dict__["fields"]
        return fields

    def __set__(self, topic: "Topic", given: StructType | str) -> None:
        try:
            topic.__dict__["fields"] = parse_fields(given) if isinstance(given, str) else given
        except ValueError as error:
            raise ConfigurationError(f"topic {topic.name}: {error}") from None


@checked
@dataclass(frozen=True)
class Topic:
    """A Pulsar topic whose payloads are objects."""

    name: str
    """The topic's name within the namespace. Its bronze table has it, too. Example: `name="stores"`"""
    fields: Fields = Fields()
    """The payload's typed fields, as DDL text or a StructType. Those that are NOT NULL are required.
    Example: `fields="id BIGINT NOT NULL, city STRING"`"""
    _: KW_ONLY
    record: str = ""
    """The name of the schema that is registered in Pulsar; by default that of the topic, such as Stores for stores.
    Example: `record="Store"`"""
    changelog: bool = False
    """Whether the broker keeps the messages forever. Example: `changelog=True`"""
    encoding: Encoding = Encoding.JSON
    """How payloads are written: JSON objects, or Avro records. Example: `encoding=Encoding.AVRO`"""
    writer_schemas: Mapping[int, str] = field(default_factory=dict)
    """The schemas that Avro messages were written with, by version. Not declared: a step reads them when it starts."""

    def __post_init__(self) -> None:
        if not self.record:
            words = re.findall("[A-Za-z0-9]+", self.name)
            object.__setattr__(self, "record", "".join(word[0].upper() + word[1:] for word in words))
        for column in self.fields:
            if column.name.lower() == "message":
                raise ConfigurationError(
                    f"topic {self.name}: field {column.name}: SQL has the message itself under this name"
                )
            if type(column.dataType) not in AVRO_TYPES:
                known = ", ".join(kind().simpleString() for kind in AVRO_TYPES)
                raise ConfigurationError(
                    f"topic {self.name}: field {column.name} is {column.dataType.simpleString()}: "
                    f"must be one of {known}"
                )

    @property
    def bronze_table(self) -> str:
        return f"bronze.{self.name}"

    @property
    def subscription(self) -> str:
        """The durable subscription that makes the broker keep messages that have not landed yet."""
        return f"lakehouse-{self.bronze_table}"

    def pulsar_schema(self) -> str:
        """The Avro record, as JSON, that Pulsar registers for the topic."""
        return json.dumps(avro_record(self.record, self.fields))


def avro_record(name: str, fields: StructType) -> dict[str, Any]:
    """The fields as an Avro record. A nested struct becomes a record named after its parent and its field."""

    def of(column: StructField) -> dict[str, Any]:
        kind = _avro(f"{name}{column.name.title().replace('_', '')}", column.dataType)
        if not column.nullable:
            return {"name": column.name, "type": kind}
        return {"name": column.name, "type": ["null", kind], "default": None}

    return {"type": "record", "name": name, "fields": [of(column) for column in fields]}


def _avro(name: str, kind: DataType) -> Any:
    match kind:
        case StructType():
            return avro_record(name, kind)
        case ArrayType():
            items = _avro(name, kind.elementType)
            return {"type": "array", "items": ["null", items] if kind.containsNull else items}
        case TimestampType():
            return {"type": "long", "logicalType": "timestamp-millis"}
        case DateType():
            return {"type": "int", "logicalType": "date"}
        case DecimalType():
            return "string"  # to stay exact: most readers parse a JSON number as a double
    if type(kind) not in AVRO_TYPES:
        raise ConfigurationError(f"{name} is {kind.simpleString()}, which has no Avro type here")
    return AVRO_TYPES[type(kind)]
