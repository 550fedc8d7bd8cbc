"""Merging a changelog into silver, compared with a plain MERGE of the same messages: speed, CPU, files rewritten.

    .venv/bin/python -m benchmarks merge [--events 2000000] [--keys 200000] [--more 100000] [--rounds 3]
    .venv/bin/python -m benchmarks merge --growth [--largest 10000000]

10 % of the changelog's messages are out of order, and 2 % are tombstones. It is merged into an empty table, and then
`more` messages into the result. The plain MERGE parses the payload and merges the last message of each key by event
time: no contract, no quarantine, no total order, no lookup of what is newer. `--growth` merges 10,000 messages into
tables with more and more keys. No broker is needed, as Spark writes the messages.
"""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from benchmarks.bench import START, Lap, bronze_rows, caught_up, lap, middle, of_home, open_lake
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.types import TimestampMillis
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.jobs.steps import merging
from pulsar_lakehouse.tables.declared import commit_file
from pulsar_lakehouse.tables.lake import Lake

BRONZE, PLAIN = USERS.topic.bronze_table, "silver.plain_users"
VARIANTS = {"latest state": replace(USERS, keeps_history=False), "and history": USERS}
BATCH = 10_000
Result = tuple[Lap, str]
"""The time, and the files that were added and removed."""


def main(
    events: Annotated[int, typer.Option(help="Messages for the empty table.")] = 2_000_000,
    keys: Annotated[int, typer.Option(help="Different users.")] = 200_000,
    more: Annotated[int, typer.Option(help="Messages that are merged afterwards.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Warm repetitions; medians are shown.")] = 3,
    growth: Annotated[bool, typer.Option("--growth", help="Merge into tables with more and more keys.")] = False,
    largest: Annotated[int, typer.Option(help="Keys in the largest of these tables.")] = 10_000_000,
) -> None:
    with open_lake() as lake:
        if growth:
            report.rows(["keys", "seconds", "CPU s", "files"], _grow(lake, largest, rounds))
            return
        _round(lake, [(0, events // 20), (events // 20, more // 20)], keys)
        found = [_round(lake, [(0, events), (events, more)], keys) for _ in range(rounds)]
    rows = []
    for name in found[0]:
        took = middle([each[name][0] for each in found])
        count = more if "onto" in name else events
        plain = middle([each[f"plain MERGE, {name.partition(', ')[2]}"][0] for each in found])
        files, ratio = found[-1][name][1], f"{took.wall / plain.wall:.2f}"
        rows.append((name, took.seconds()[0], *took.rates(count), files, ratio))
    columns = ["", "seconds", "messages/s", "CPU µs/message", "files", "time / plain"]
    report.rows(columns, rows, title=f"{events:,} messages of {keys:,} keys, then {more:,}")


def _round(lake: Lake, parts: list[tuple[int, int]], keys: int) -> dict[str, Result]:
    by_name = {name: _afresh(lake, name) for name in VARIANTS}
    beside = by_name["latest state"]
    ddl = f"{USERS.decoding.ddl}, seq TIMESTAMP"
    lake.spark.sql(f"CREATE TABLE delta.`{beside.table(PLAIN).path}` ({ddl}) USING delta")
    found = {}
    for size, (first, count) in zip(("empty", "onto that"), parts, strict=True):
        for name, entity in VARIANTS.items():
            own = by_name[name]
            own.table(BRONZE).append(changelog(lake.spark, range(first, first + count), keys))
            ours = caught_up(own, merging(own, [entity]))
            found[f"{name}, {size}"] = (ours, _files(own, entity.table.name))
        landed = beside.table(BRONZE).read()
        with lap() as plain:
            plain_merge(beside, landed.where(F.col("entry_id") >= first))
        found[f"plain MERGE, {size}"] = (plain, _files(beside, PLAIN))
    return found


def _grow(lake: Lake, largest: int, rounds: int) -> list[tuple[str, ...]]:
    """Fill each table with one message for each key, then merge batches with random keys."""
    rows: list[tuple[str, ...]] = []
    for name, entity in VARIANTS.items():
        for keys in (largest // 100, largest // 10, largest):
            own = _afresh(lake, name)
            own.table(BRONZE).append(changelog(lake.spark, range(keys), keys, each_key=True))
            caught_up(own, merging(own, [entity]))
            laps = []
            for first in range(keys, keys + BATCH * rounds, BATCH):
                own.table(BRONZE).append(changelog(lake.spark, range(first, first + BATCH), keys))
                laps.append(caught_up(own, merging(own, [entity])))
            rows.append((f"{name}, {keys:,}", *middle(laps).seconds(), _files(own, entity.table.name)))
    return rows


def _afresh(lake: Lake, name: str) -> Lake:
    own = of_home(lake, name.replace(" ", "-"))
    shutil.rmtree(own.settings.home, ignore_errors=True)
    own.create(bronze_table(USERS.topic))
    return own


def changelog(spark: SparkSession, ids: range, keys: int, *, each_key: bool = False) -> DataFrame:
    """Messages, one each millisecond. Every tenth is up to an hour old, every fiftieth is a tombstone.

    Their keys are random or, with `each_key`, shuffled: each key once, if there are as many messages as keys.
    """
    n = F.col("id")
    user = F.pmod(n * 7_368_787 if each_key else F.xxhash64(n), F.lit(keys))  # a prime, so it meets each key once
    age = F.when(n % 10 == 0, F.pmod(F.xxhash64(n, F.lit(1)), F.lit(3_600_000))).otherwise(0)
    names = [
        F.concat(F.lit(prefix), F.xxhash64(n) % 1000).alias(name)
        for prefix, name in (("Ada", "firstName"), ("L", "lastName"))
    ]
    mail = F.concat(F.lit("user"), user).alias("emailAddress")
    fields = [user.alias("id"), *names, mail, F.lit(0).alias("createdAt")]
    unset = [F.lit(-1).alias(name) for name in ("deletedAt", "mergedAt", "parentUserId")]
    return bronze_rows(
        spark,
        "users",
        ids,
        key=user,
        payload=F.when(n % 50 != 0, F.to_json(F.struct(*fields, *unset))),
        event_time=F.timestamp_millis(F.lit(START) + n - age),
    )


def plain_merge(lake: Lake, messages: DataFrame) -> None:
    fields = USERS.topic.fields
    times = [field.name for field in fields if isinstance(field.dataType, TimestampMillis)]
    parsed_as = [StructField(each.name, LongType() if each.name in times else each.dataType) for each in fields]
    parsed = F.from_json(F.col("payload").cast("string"), StructType(parsed_as))
    value = F.struct(*((F.timestamp_millis(parsed[n]) if n in times else parsed[n]).alias(n) for n in fields.names))
    rows = messages.select(
        F.col("key").cast("long").alias("_key"), "payload", F.col("event_time").alias("seq"), value.alias("v")
    ).select("_key", "payload", "seq", "v.*")
    typed = rows.select(
        *(F.expr(sql).alias(name) for name, sql in USERS.columns.items() if name != "id"),
        F.col("_key").alias("id"),
        F.when(F.col("payload").isNull(), F.col("seq")).otherwise(F.expr(USERS.deleted_at)).alias("deleted_at"),
        "seq",
    )
    last = typed.groupBy("id").agg(F.max_by(F.struct(*typed.columns), "seq").alias("last")).select("last.*")
    (
        lake.table(PLAIN)
        .delta.alias("held")
        .merge(last.alias("new"), "held.id = new.id")
        .whenMatchedUpdateAll("new.seq > held.seq")
        .whenNotMatchedInsertAll()
        .execute()
    )


def _files(lake: Lake, name: str) -> str:
    """The files that the last commit added and removed."""
    last = Path(lake.table(name).path) / commit_file(lake.table(name).version)
    actions = Counter(next(iter(json.loads(line))) for line in last.read_text().splitlines())
    return f"+{actions['add']} -{actions['remove']}"
