"""Avro payloads into typed fields, each by the schema that it was written with."""

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BooleanType, StructField, StructType

from lakehouse.contracts.topics import AVRO_TYPES, Topic

DECODED = "_decoded"


def parse_avro(payload: str, version: str, topic: Topic) -> Column:
    """The contract's fields of a payload as a struct, and DECODED: NULL if it is not what its writer's schema says.

    The struct is NULL if that schema is unknown.
    """
    columns = [StructField(field.name, field.dataType) for field in topic.fields]
    value = F.lit(None).cast(StructType([*columns, StructField(DECODED, BooleanType())]))
    options = {"mode": "PERMISSIVE", "avroSchema": _reader_schema(topic)}
    for number, schema in topic.writer_schemas.items():
        record = from_avro(payload, schema, options)
        value = F.when(F.col(version) == number, record).otherwise(value)
    return value


def _reader_schema(topic: Topic) -> str:
    fields: list[dict[str, object]] = [
        {"name": field.name, "type": ["null", AVRO_TYPES[type(field.dataType)]], "default": None}
        for field in topic.fields
    ]
    # No writer writes this field: it has its default in every record that can be read.
    fields.append({"name": DECODED, "type": "boolean", "default": True})
    return json.dumps({"type": "record", "name": topic.record, "fields": fields})
