"""Orders that wait, and users that come: the time to wake 1,000 of 1,000,000, and 100,000 of them.

    .venv/bin/python benchmarks/release.py [--waiting 1000000] [--rounds 3]

Each user has ten waiting orders. The time is that of merging the users and of enriching, which are two batches. No
broker is needed; Spark writes the messages.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, bronze_rows, lap, middle
from bronze.landing import bronze_table
from gold.orders import ORDERS
from jobs import report
from jobs.pipeline import ENRICHMENTS, ENTITIES, TOPICS
from jobs.steps import enriching, merging, prove
from jobs.streams import catch_up
from lakehouse.session import start_spark, stop_spark
from lakehouse.settings import Settings, load_settings
from lakehouse.tables import append, create_table, read_table

ORDERS_OF_A_USER = 10
WAKES = (1_000, 100_000)


def main(
    waiting: Annotated[int, typer.Option(help="Waiting orders.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Repeats; medians are shown.")] = 3,
) -> None:
    user = load_settings()
    settings = user.model_copy(update={"home": user.home / "benchmark", "warehouse": "", "checkpoints": ""})
    shutil.rmtree(settings.home, ignore_errors=True)
    spark = start_spark(settings)
    try:
        for topic in TOPICS:
            create_table(spark, settings, bronze_table(topic))
        land(spark, settings, "items", range(1), {"id": F.col("id"), "price": F.lit(1.5)})
        orders = {"invoiceId": F.col("id"), "lineItemId": F.lit(1), "itemId": F.lit(0), "price": F.lit(1.5)}
        land(spark, settings, "orders", range(waiting), orders | {"userId": F.floor(F.col("id") / ORDERS_OF_A_USER)})
        step(spark, settings)
        found: dict[int, list[Lap]] = {wakes: [] for wakes in WAKES}
        first = 0
        for _ in range(rounds):
            for wakes in WAKES:
                users = range(first, first + wakes // ORDERS_OF_A_USER)
                land(spark, settings, "users", users, {"id": F.col("id")})
                left = read_table(spark, settings, ORDERS.waiting.name).count()
                with lap() as measured:
                    step(spark, settings)
                woken = left - read_table(spark, settings, ORDERS.waiting.name).count()
                assert woken == wakes, f"{woken:,} woke, of {wakes:,}"
                found[wakes].append(measured)
                first = users.stop
        report.balances(prove(spark, settings))
    finally:
        stop_spark()
    laps = {wakes: middle(each) for wakes, each in found.items()}
    rows = [(f"{wakes:,}", f"{took.wall:.1f}", f"{took.cpu:.1f}") for wakes, took in laps.items()]
    report.rows(["orders woken", "seconds", "CPU s"], rows, title=f"{waiting:,} orders wait")


def land(spark: SparkSession, settings: Settings, topic: str, ids: range, fields: dict[str, Column]) -> None:
    created = fields | {"createdAt": F.lit(START)}
    payload = F.to_json(F.struct(*(value.alias(name) for name, value in created.items())))
    event_time = F.timestamp_millis(F.lit(START))
    rows = bronze_rows(spark, topic, ids, key=F.col("id"), payload=payload, event_time=event_time)
    append(rows, settings, f"bronze.{topic}")


def step(spark: SparkSession, settings: Settings) -> None:
    catch_up(settings, merging(spark, settings, ENTITIES))
    catch_up(settings, enriching(spark, settings, ENRICHMENTS))


if __name__ == "__main__":
    typer.run(main)
