"""Structs with fields that SQL needs quoted, taken as a whole, through all steps."""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DecimalType, LongType, MapType, StringType, StructField, StructType

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic
from pulsar_lakehouse.gold.sql.declaration import read_declaration
from pulsar_lakehouse.gold.sql.refresh import refresh
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.jobs.trace import trace_facts
from pulsar_lakehouse.pipeline.resolving import unresolved_enrichment, unresolved_entity
from pulsar_lakehouse.tables.declared import ddl_of
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import at, message, millis
from tests.oracle import Message

NESTED = StructType([StructField(name, DecimalType(6, 2)) for name in ("http.method", "@type", "$oid", "plain", "1st")])
LABELS = "named_struct('http.method', method, '@type', kind, '$oid', named_struct('a-b', method)) AS labels"
SERVICES = Entity(
    topic=Topic("services", "id BIGINT NOT NULL, method STRING, kind STRING", changelog=True),
    key="id",
    columns=f"id, {LABELS}",
)
CALLS = Enrichment(
    topic=Topic(
        "calls", "id BIGINT NOT NULL, service BIGINT, method STRING, kind STRING, at TIMESTAMP_MILLIS NOT NULL"
    ),
    columns=f"id, service AS service_id, {LABELS}, at AS called_at",
    keys=("id",),
    event_time="called_at",
    day="call_date",
    lookups=(Lookup(entity=SERVICES, on="service_id", name="service"),),
)


SQL = """-- The labels of each call, and the method of its service.
-- keys: id
-- refresh: incremental
SELECT id, labels, service.labels.`http.method` AS method FROM gold.enriched_calls
"""


def service(method: str, *, place: int) -> Message:
    return message("services", {"id": 1, "method": method, "kind": "web"}, key="1", when=place, place=place)


def run(lake: Lake, *messages: Message) -> None:
    land_literally(lake, messages, [SERVICES.topic, CALLS.topic])
    catch_up(lake.settings, merging(lake, [SERVICES]))
    catch_up(lake.settings, enriching(lake, [CALLS]))


def labels(method: str, kind: str) -> dict[str, object]:
    return {"http.method": method, "@type": kind, "$oid": {"a-b": method}}


def test_structs_pass_whatever_their_fields_are_named(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    assert [*unresolved_entity(lake.spark, SERVICES), *unresolved_enrichment(lake.spark, CALLS)] == []
    call = {"id": 7, "service": 1, "method": "PUT", "kind": "call", "at": millis(at(10))}
    run(own, service("GET", place=1), service("HEAD", place=2), message("calls", call, key=None, place=1))
    assert [row["labels"] for row in read(own.settings, "silver.services")] == [labels("HEAD", "web")]
    history = read(own.settings, "silver.services_history")
    assert sorted(row["labels"]["http.method"] for row in history) == ["GET", "HEAD"]
    [gold] = read(own.settings, CALLS.gold_table)
    assert (gold["labels"], gold["service"]["labels"]) == (labels("PUT", "call"), labels("HEAD", "web"))
    file = tmp_path / "labels_of_calls.sql"
    file.write_text(SQL)
    refresh(own, read_declaration(file))
    [row] = read(own.settings, "gold.labels_of_calls")
    assert (row["labels"], row["method"]) == (labels("PUT", "call"), "HEAD")
    assert query(own.settings, f'SELECT labels."http.method" FROM {CALLS.gold_table}').fetchall() == [("PUT",)]
    assert [each.table for each in trace_facts(own.settings, CALLS, ["7"])][-1] == CALLS.gold_table


def test_a_name_that_no_table_can_have_is_told_by_a_plan(lake: Lake) -> None:
    spaced = Entity(
        topic=SERVICES.topic, key="id", columns="id, named_struct('a b', array(named_struct('c,d', 1))) AS x"
    )
    assert list(unresolved_entity(lake.spark, spaced)) == [
        "column x has a field named `a b`, which no table can have: take its fields one by one, or to_json() of it",
        "column x has a field named `c,d`, which no table can have: take its fields one by one, or to_json() of it",
    ]


def test_the_ddl_of_columns_gives_the_columns_again(spark: SparkSession) -> None:
    """Spark reads it."""
    schema = StructType([StructField("id", LongType()), StructField("of", MapType(StringType(), ArrayType(NESTED)))])
    assert StructType.fromDDL(ddl_of(schema)) == schema
