"""Decodes Avro payloads into typed fields, with the schema that each was written with."""

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BooleanType, StructField, StructType

from lakehouse.contracts.topics import AVRO_TYPES, Topic

DECODED = "_decoded"


def parse_avro(payload: str, version: str, topic: Topic) -> Column:
    """A struct of the contract's fields and DECODED, which is NULL if the payload does not fit its writer's schema.

    The struct is NULL if that schema is unknown. `payload` and `version` are names of columns.
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
    # No writer has this field, so it gets its default in every record that can be read.
    fields.append({"name": DECODED, "type": "boolean", "default": True})
    return json.dumps({"type": "record", "name": topic.record, "fields": fields})
