import io
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import fastavro
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoding import Decoding, decode, explain
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from tests.lake import bronze_row
from tests.messages import message


def record(record: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": record, "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


WRITERS = (
    record("Ship", id="int", speed="float", flag={"type": "enum", "name": "Flag", "symbols": ["A"]}),
    record("Vessel", name=["null", "string"], built=["null", "long"], speed=["null", "long"], id="long"),
    record("Ship", id=["null", "long"], speed="double"),
)
SHIPS = Topic(
    "ships",
    "id BIGINT NOT NULL, name STRING, speed DOUBLE, built TIMESTAMP_MILLIS",
    record="Ship",
    encoding=Encoding.AVRO,
    schemas=tuple(
        RegisteredSchema(version=version, type="AVRO", data=json.dumps(schema))
        for version, schema in enumerate(WRITERS)
    ),
)


def written(version: int, **values: Any) -> tuple[int, bytes]:
    payload = io.BytesIO()
    fastavro.schemaless_writer(payload, WRITERS[version], values)
    return version, payload.getvalue()


def decoded(spark: SparkSession, messages: Sequence[tuple[int | None, bytes | None]]) -> list[tuple[Any, ...]]:
    decoding = Decoding(topic=SHIPS, columns={name: name for name in SHIPS.fields.names})
    rows = [
        (*bronze_row(message("ships", payload, key="k", place=place))[:11], version, None, None)
        for place, (version, payload) in enumerate(messages)
    ]
    bronze = spark.createDataFrame(rows, bronze_table(SHIPS).ddl)
    found = bronze.transform(decode, decoding=decoding, reject=F.lit(None).cast("string"))
    values = found.orderBy("message.position").drop("message", "reason").collect()
    reasons = found.transform(explain, decoding=decoding).orderBy("message.position").collect()
    return [(*row, explained.reason) for row, explained in zip(values, reasons, strict=True)]


def test_records_are_read_by_the_schema_they_were_written_with(spark: SparkSession) -> None:
    messages = [
        written(0, id=1, speed=1.5, flag="A"),
        written(1, id=2**40, name="Zoë", speed=7, built=0),
        written(1, id=3, name=None, speed=None, built=None),
        (None, None),
    ]
    assert decoded(spark, messages) == [
        (1, None, 1.5, None, None),
        (2**40, "Zoë", 7.0, datetime(1970, 1, 1), None),
        (3, None, None, None, None),
        (None, None, None, None, None),
    ]


def test_what_is_no_such_record_is_malformed(spark: SparkSession) -> None:
    _, whole = written(1, id=3, name="Zoë", speed=7, built=0)
    no_length = b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    messages = [
        (1, whole[:3]),
        (1, b"\xff" * 20),
        (1, no_length),
        (1, b'{"id": 1}'),
        (9, whole),
        (None, whole),
        written(2, id=None, speed=1.0),
        written(1, id=1, name=None, speed=None, built=2**62),
    ]
    assert [reason for *_, reason in decoded(spark, messages)] == [
        *["no Avro record of schema version 1"] * 4,
        "unknown schema version: 9",
        "no schema version",
        "id is missing",
        f"built is out of range: {2**62}",
    ]
