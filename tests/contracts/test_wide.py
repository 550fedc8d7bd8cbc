"""Contracts of many fields, and topics of many schema versions."""

import io
import json

import fastavro
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoder import Decoder, Message
from pulsar_lakehouse.contracts.decoding import Decoding, decode, explain
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import Encoding
from tests.lake import bronze_row
from tests.messages import message

NAMES = [f"f{number}" for number in range(1_000)]
WIDE = Topic("wide", ", ".join(f"{name} BIGINT" for name in NAMES))
ADDED = Decoding(topic=WIDE, columns={**{name: name for name in NAMES}, "f998": "f998 + 1"})


def test_a_thousand_fields(spark: SparkSession) -> None:
    good = json.dumps(dict.fromkeys(NAMES, 1)).encode()
    sent = [
        good,
        good.replace(b'"f999": 1', b'"f999": "x"'),
        good.replace(b'"f998": 1', b'"f998": 9223372036854775807'),
    ]
    rows = [bronze_row(message("wide", payload, key=None, place=place)) for place, payload in enumerate(sent)]
    messages = spark.createDataFrame(rows, bronze_table(WIDE).ddl)
    decoded = messages.transform(decode, decoding=ADDED, reject=F.lit(None).cast("string"))
    assert [row.f999 for row in decoded.orderBy("message.position").collect()] == [1, None, None]
    explained = decoded.transform(explain, decoding=ADDED).orderBy("message.position").collect()
    assert [row.reason for row in explained] == [
        None,
        "f999 is no bigint: x",
        "f998: f998 + 1 gives no bigint with f998 = 9223372036854775807",
    ]


def test_five_hundred_versions() -> None:
    versions = [
        {"type": "record", "name": "R", "fields": [{"name": f"f{at}", "type": "long"} for at in range(version + 1)]}
        for version in range(500)
    ]
    schemas = tuple(
        RegisteredSchema(version=version, type="AVRO", data=json.dumps(each), registered_at=version)
        for version, each in enumerate(versions)
    )
    decoder = Decoder(Topic("wide", "f0 BIGINT, f499 BIGINT", encoding=Encoding.AVRO, schemas=schemas))
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, versions[300], {f"f{at}": at for at in range(301)})
    decoded = decoder.decode(Message(None, payload.getvalue(), 300, 1_000))
    assert (decoded.fields, decoded.reason) == ({"f0": 0}, None)
