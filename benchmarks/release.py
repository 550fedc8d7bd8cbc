"""Orders that wait, and users that come: the time to wake 1,000 of 1,000,000 orders, or 100,000, or 1,000 of 10,000.

    .venv/bin/python benchmarks/release.py [--waiting 1000000] [--rounds 3]

Each user has ten waiting orders. The time is that of merging the users and of enriching, which are two batches. No
broker is needed; Spark writes the messages.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.bench import Lap, land, lap, merge_and_enrich, middle
from gold.orders import ORDERS
from jobs import report
from jobs.steps import prove
from lakehouse.session import start_spark, stop_spark
from lakehouse.settings import Settings, load_settings
from lakehouse.tables import read_table

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
    rows = []
    try:
        for size, wakes in ((waiting // 100, WAKES[:1]), (waiting, WAKES)):
            own = settings.model_copy(update={"home": settings.home / str(size)})
            for woken, took in wake(spark, own, size, wakes, rounds).items():
                rows.append((f"{size:,}", f"{woken:,}", f"{took.wall:.1f}", f"{took.cpu:.1f}"))
    finally:
        stop_spark()
    report.rows(["waiting", "woken", "seconds", "CPU s"], rows, title="Orders that wait for their users")


def wake(spark: SparkSession, settings: Settings, waiting: int, wakes: Sequence[int], rounds: int) -> dict[int, Lap]:
    """The median time to wake each number of so many waiting orders, after a round that warms the process up."""
    land(spark, settings, "items", range(1), {"id": F.col("id"), "price": F.lit(1.5)})
    orders = {"invoiceId": F.col("id"), "lineItemId": F.lit(1), "itemId": F.lit(0), "price": F.lit(1.5)}
    land(spark, settings, "orders", range(waiting), orders | {"userId": F.floor(F.col("id") / ORDERS_OF_A_USER)})
    merge_and_enrich(spark, settings)
    found: dict[int, list[Lap]] = {woken: [] for woken in wakes}
    first = 0
    for _ in range(1 + rounds):
        for woken in wakes:
            users = range(first, first + woken // ORDERS_OF_A_USER)
            land(spark, settings, "users", users, {"id": F.col("id")})
            left = read_table(spark, settings, ORDERS.waiting.name).count()
            with lap() as measured:
                merge_and_enrich(spark, settings)
            came_back = left - read_table(spark, settings, ORDERS.waiting.name).count()
            assert came_back == woken, f"{came_back:,} woke, of {woken:,}"
            found[woken].append(measured)
            first = users.stop
    report.balances(prove(spark, settings))
    return {woken: middle(each[1:]) for woken, each in found.items()}


if __name__ == "__main__":
    typer.run(main)
