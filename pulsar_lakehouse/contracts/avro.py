"""Decodes Avro payloads into typed fields, with the schema that each was written with."""

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BooleanType, StructType

from pulsar_lakehouse.contracts.avro_schemas import Written
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.contracts.values import Mistakes, parsed_type, told_of

DECODED = "_decoded"


def parse_avro(payload: str, version: str, topic: Topic) -> Column:
    """A struct of the contract's fields and DECODED, which is NULL if the payload does not fit its writer's schema.

    The struct is NULL if that schema is unknown, or can't be read as declared. `payload` and `version` are names of
    columns.
    """
    fields = parsed_type(topic.fields, Encoding.AVRO)
    assert isinstance(fields, StructType)
    fields = fields.add(DECODED, BooleanType())
    value = F.lit(None).cast(fields)
    for number, schema in topic.writer_schemas.items():
        written = Written(schema)
        if not written.differences(topic.fields, Encoding.AVRO):
            options = {"mode": "PERMISSIVE", "avroSchema": _reader_schema(written, topic)}
            record = from_avro(payload, schema, options).cast(fields)
            value = F.when(F.col(version) == number, record).otherwise(value)
    return value


def _reader_schema(written: Written, topic: Topic) -> str:
    record = written.reader(topic.record, topic.fields)
    # No writer has this field, so it gets its default in every record that can be read.
    record["fields"].append({"name": DECODED, "type": "boolean", "default": True})
    return json.dumps(record)


def avro_difference(topic: Topic, version: Column, value: Column, mistakes: Mistakes) -> Column:
    """How an Avro message breaks the contract. `value` is what `parse_avro` makes of it."""
    number = version.cast("string")
    difference = F.when(version.isNull(), "no schema version")
    for known, schema in topic.writer_schemas.items():
        if differences := Written(schema).differences(topic.fields, Encoding.AVRO):
            difference = difference.when(version == known, f"schema version {known}: {'; '.join(differences)}")
    return (
        difference.when(value.isNull(), F.concat(F.lit("unknown schema version: "), number))
        .when(value[DECODED].isNull(), F.concat(F.lit("no Avro record of schema version "), number))
        .otherwise(told_of(mistakes))
    )
