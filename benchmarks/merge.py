"""A changelog into silver, beside a plain MERGE of the same messages: rows a second, CPU, files rewritten.

    .venv/bin/python benchmarks/merge.py [--events 2000000] [--keys 200000] [--more 100000] [--rounds 3]

The changelog has 10 % of its messages out of order and 2 % tombstones. It is merged into an empty table, then `more`
of it onto that. The plain MERGE parses the payload, takes the last message of each key by event time, and merges that:
no contract, no quarantine, no total order, no lookup of what is newer. No broker is needed; Spark writes the messages.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.bench import Lap, lap, middle
from bronze.landing import bronze_table
from jobs import report
from jobs.steps import merging
from jobs.streams import catch_up
from lakehouse.session import start_spark, stop_spark
from lakehouse.settings import Settings, load_settings
from lakehouse.tables import append, create_table, read_table
from silver.users import USERS

PLAIN = "silver.plain_users"
Result = tuple[Lap, str]
"""How long it took, and the files it added and removed."""


def main(
    events: Annotated[int, typer.Option(help="Messages for the empty table.")] = 2_000_000,
    keys: Annotated[int, typer.Option(help="Different users.")] = 200_000,
    more: Annotated[int, typer.Option(help="Messages onto that.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Warm repeats; medians are shown.")] = 3,
) -> None:
    user = load_settings()
    settings = user.model_copy(update={"home": user.home / "benchmark", "warehouse": "", "checkpoints": ""})
    spark = start_spark(settings)
    try:
        _round(spark, settings, [(0, events // 20), (events // 20, more // 20)], keys)
        found = [_round(spark, settings, [(0, events), (events, more)], keys) for _ in range(rounds)]
    finally:
        stop_spark()
    rows = []
    for name in found[0]:
        took = middle([each[name][0] for each in found])
        count = more if "onto" in name else events
        ours = middle([each[name.replace("plain", "ours")][0] for each in found])
        rows.append(
            (
                name,
                f"{took.wall:.1f}",
                f"{count / took.wall:,.0f}",
                f"{took.cpu / count * 1e6:.1f}",
                found[-1][name][1],
                f"{ours.wall / took.wall:.2f}",
            )
        )
    columns = ["", "seconds", "messages/s", "CPU µs/message", "files", "ours / this"]
    report.rows(columns, rows, title=f"{events:,} messages of {keys:,} keys, then {more:,}")


def _round(spark: SparkSession, settings: Settings, parts: list[tuple[int, int]], keys: int) -> dict[str, Result]:
    shutil.rmtree(settings.warehouse_root, ignore_errors=True)
    shutil.rmtree(settings.checkpoint_root, ignore_errors=True)
    create_table(spark, settings, bronze_table(USERS.topic))
    spark.sql(
        f"CREATE TABLE delta.`{settings.table_path(PLAIN)}` ({USERS.types}, deleted_at TIMESTAMP, seq TIMESTAMP) "
        "USING delta"
    )
    found = {}
    for name, (first, count) in zip(("empty", "onto that"), parts, strict=True):
        messages = changelog(spark, first, count, keys)
        append(messages, settings, USERS.topic.bronze_table)
        with lap() as ours:
            catch_up(settings, merging(spark, settings, [USERS]))
        found[f"ours, {name}"] = (ours, _files(spark, settings, USERS.table.name))
        landed = read_table(spark, settings, USERS.topic.bronze_table)
        with lap() as plain:
            plain_merge(spark, settings, landed.where(F.col("entry_id") >= first))
        found[f"plain, {name}"] = (plain, _files(spark, settings, PLAIN))
    return found


def changelog(spark: SparkSession, first: int, count: int, keys: int) -> DataFrame:
    """Messages number `first` and on, one a millisecond; each tenth is up to an hour old, each fiftieth a tombstone."""
    n = F.col("id")
    user = F.pmod(F.xxhash64(n), F.lit(keys))
    published = F.timestamp_millis(F.lit(1_767_225_600_000) + n)
    age = F.when(n % 10 == 0, F.pmod(F.xxhash64(n, F.lit(1)), F.lit(3_600_000))).otherwise(0)
    names = [
        F.concat(F.lit(prefix), F.xxhash64(n) % 1000).alias(name)
        for prefix, name in (("Ada", "firstName"), ("L", "lastName"))
    ]
    fields = [
        user.alias("id"),
        *names,
        F.concat(F.lit("user"), user).alias("emailAddress"),
        F.lit(0).alias("createdAt"),
    ]
    unset = [F.lit(-1).alias(name) for name in ("deletedAt", "mergedAt", "parentUserId")]
    columns = {
        "topic": F.lit("users"),
        "partition": F.lit(0),
        "ledger_id": F.lit(1).cast("long"),
        "entry_id": n,
        "batch_index": F.lit(-1),
        "key": user.cast("string"),
        "payload": F.when(n % 50 != 0, F.to_json(F.struct(*fields, *unset)).cast("binary")),
        "properties": F.create_map().cast("map<string,string>"),
        "event_time": F.timestamp_millis(F.lit(1_767_225_600_000) + n - age),
        "publish_time": published,
        "producer": F.lit("benchmark"),
        "schema_version": F.lit(0).cast("long"),
        "landed_at": published,
        "publish_date": F.to_date(published),
    }
    return spark.range(first, first + count).select(*(value.alias(name) for name, value in columns.items()))


def plain_merge(spark: SparkSession, settings: Settings, messages: DataFrame) -> None:
    value = F.from_json(F.col("payload").cast("string"), USERS.topic.fields)
    parsed = messages.select(
        F.col("key").cast("long").alias("_key"), "payload", F.col("event_time").alias("seq"), value.alias("v")
    ).select("_key", "payload", "seq", "v.*")
    typed = parsed.select(
        *(F.expr(sql).alias(name) for name, sql in USERS.columns.items() if name != "id"),
        F.col("_key").alias("id"),
        F.when(F.col("payload").isNull(), F.col("seq")).otherwise(F.expr(USERS.deleted_at)).alias("deleted_at"),
        "seq",
    )
    last = typed.groupBy("id").agg(F.max_by(F.struct(*typed.columns), "seq").alias("last")).select("last.*")
    (
        DeltaTable.forPath(spark, settings.table_path(PLAIN))
        .alias("held")
        .merge(last.alias("new"), "held.id = new.id")
        .whenMatchedUpdateAll("new.seq > held.seq")
        .whenNotMatchedInsertAll()
        .execute()
    )


def _files(spark: SparkSession, settings: Settings, name: str) -> str:
    [done] = DeltaTable.forPath(spark, settings.table_path(name)).history(1).select("operationMetrics").collect()
    metrics = done.operationMetrics
    return f"+{metrics['numTargetFilesAdded']} -{metrics['numTargetFilesRemoved']}"


if __name__ == "__main__":
    typer.run(main)
