"""Merging the changes of a table that Debezium replicates, compared with the plainest way of Spark.

    .venv/bin/python -m benchmarks replicate [--changes 500000] [--keys 50000] [--rounds 3]

Envelopes in JSON, of which 2 % delete, are merged into latest state and history. The plain way is a stream whose
`foreachBatch` parses them and merges the last change of each key by its position in the log, without history, contract
or quarantine. Both tables must be equal. No broker is needed, as Spark writes the messages.
"""

import shutil
from collections.abc import Callable
from typing import Annotated

import typer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, bronze_rows, caught_up, lap, middle, of_home, open_lake
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import KeyEncoding
from pulsar_lakehouse.jobs.steps import merging
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake

FIELDS = "id BIGINT NOT NULL, name STRING NOT NULL, city STRING, rating INT, changed BIGINT"
CUSTOMERS = Entity(
    topic=Topic(
        "customers",
        f"{FIELDS}, __source_lsn BIGINT, __source_ts_ms TIMESTAMP_MILLIS",
        topic="shop.public.customers",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
        changelog=True,
    ),
    key="id",
    columns="id, name, city, rating, changed, __source_lsn AS lsn",
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
)
BRONZE, PLAIN = CUSTOMERS.topic.bronze_table, "silver.plain_customers"
PARSED = f"op STRING, before STRUCT<id: BIGINT>, after STRUCT<{FIELDS}>, source STRUCT<lsn: BIGINT>"


def main(
    changes: Annotated[int, typer.Option(help="Changes of rows.")] = 500_000,
    keys: Annotated[int, typer.Option(help="Different rows.")] = 50_000,
    rounds: Annotated[int, typer.Option(help="Warm repetitions; medians are shown.")] = 3,
) -> None:
    with open_lake() as lake:
        ways: dict[str, Callable[[Lake], Lap]] = {"latest state and history": _ours, "plain MERGE": _plain}
        found: dict[str, list[Lap]] = {name: [] for name in ways}
        for _ in range(rounds + 1):  # the first one warms up
            own = of_home(lake, "round")
            shutil.rmtree(own.settings.home, ignore_errors=True)
            own.create(bronze_table(CUSTOMERS.topic))
            own.table(BRONZE).append(changelog(own, changes, keys))
            for name, way in ways.items():
                found[name].append(way(own))
            _check_equal(own)
    laps = {name: middle(each[1:]) for name, each in found.items()}
    rows = [(name, took.seconds()[0], *took.rates(changes)) for name, took in laps.items()]
    report.rows(["", "seconds", "changes/s", "CPU µs/change"], rows, title=f"{changes:,} changes of {keys:,} rows")


def changelog(lake: Lake, count: int, keys: int) -> DataFrame:
    """Changes in the order of the log, one each millisecond. Every fiftieth is a delete."""
    n = F.col("id")
    key = F.pmod(F.xxhash64(n), F.lit(keys))
    columns = {"id": key, "name": F.concat(F.lit("name "), n), "city": F.concat(F.lit("city "), n % 100)}
    after = F.struct(*(value.alias(name) for name, value in {**columns, "rating": n % 5, "changed": n}.items()))
    source = {"version": F.lit("3.6.1.Final"), "connector": F.lit("postgresql"), "name": F.lit("shop"), "lsn": n * 8}
    source |= {"ts_ms": F.lit(START) + n, "snapshot": F.lit("false"), "schema": F.lit("public"), "txId": n}
    is_delete = n % 50 == 49
    parts = {
        "before": F.when(is_delete, F.struct(key.alias("id"), F.lit("").alias("name"))),
        "after": F.when(~is_delete, after),
        "source": F.struct(*(value.alias(name) for name, value in source.items())),
        "op": F.when(is_delete, "d").otherwise("u"),
        "ts_ms": F.lit(START) + n,
    }
    envelope = F.struct(*(value.alias(name) for name, value in parts.items()))
    return bronze_rows(
        lake.spark,
        CUSTOMERS.topic.name,
        range(count),
        key=F.to_json(F.struct(key.alias("id"))),
        payload=F.to_json(envelope, {"ignoreNullFields": "false"}),
        event_time=F.lit(None),
    )


def _ours(lake: Lake) -> Lap:
    return caught_up(lake, merging(lake, [CUSTOMERS]))


def _plain(lake: Lake) -> Lap:
    path, ddl = lake.settings.table_path(PLAIN), f"{FIELDS}, lsn BIGINT"
    lake.spark.sql(f"CREATE TABLE delta.`{path}` ({ddl.replace(' NOT NULL', '')}) USING delta")
    stream = lake.spark.readStream.format("delta").load(lake.settings.table_path(BRONZE))
    checkpoint = f"{lake.settings.home}/plain-checkpoint"
    with lap() as took:
        query = stream.writeStream.foreachBatch(lambda batch, _: plain_merge(lake, batch))
        query.trigger(availableNow=True).option("checkpointLocation", checkpoint).start().awaitTermination()
    return took


def plain_merge(lake: Lake, messages: DataFrame) -> None:
    change = messages.select(F.from_json(F.col("payload").cast("string"), PARSED).alias("c")).select("c.*")
    id: Column = F.coalesce("after.id", "before.id")
    rows = change.select(
        "op", id.alias("id"), *(f"after.{name}" for name in ("name", "city", "rating", "changed")), "source.lsn"
    )
    last = rows.groupBy("id").agg(F.max_by(F.struct(*rows.columns), "lsn").alias("last")).select("last.*")
    (
        lake.table(PLAIN)
        .delta.alias("held")
        .merge(last.alias("new"), "held.id = new.id")
        .whenMatchedDelete("new.op = 'd' AND new.lsn > held.lsn")
        .whenMatchedUpdate("new.lsn > held.lsn", {name: f"new.{name}" for name in rows.columns if name != "op"})
        .whenNotMatchedInsert("new.op <> 'd'", {name: f"new.{name}" for name in rows.columns if name != "op"})
        .execute()
    )


def _check_equal(lake: Lake) -> None:
    plain = lake.table(PLAIN).read()
    ours = lake.table(CUSTOMERS.table.name).read().where("deleted_at IS NULL").select(*plain.columns)
    if ours.exceptAll(plain).count() or plain.exceptAll(ours).count():
        raise SystemExit("the two tables differ")
