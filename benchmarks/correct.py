"""Late prices, and the orders in gold that they correct: the time to correct 1,000 of 1,000,000 orders, or of 10,000.

    .venv/bin/python benchmarks/correct.py [--orders 1000000] [--rounds 3]

Each item has ten orders, and each day 10,000. The time is that of merging 100 items and of enriching, which are two
batches. No broker is needed; Spark writes the messages.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, land, lap, merge_and_enrich, middle
from gold.orders import ORDERS
from jobs import report
from jobs.steps import prove
from lakehouse.session import start_spark, stop_spark
from lakehouse.settings import Settings, load_settings
from lakehouse.tables import read_table

ORDERS_OF_AN_ITEM, ITEMS = 10, 100
ORDERS_OF_A_DAY, DAY = 10_000, 86_400_000


def main(
    orders: Annotated[int, typer.Option(help="Orders in gold.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Repeats; medians are shown.")] = 3,
) -> None:
    user = load_settings()
    settings = user.model_copy(update={"home": user.home / "benchmark", "warehouse": "", "checkpoints": ""})
    shutil.rmtree(settings.home, ignore_errors=True)
    spark = start_spark(settings)
    rows = []
    try:
        for size in (orders // 100, orders):
            own = settings.model_copy(update={"home": settings.home / str(size)})
            took = correct(spark, own, size, rounds)
            rows.append((f"{size:,}", f"{ITEMS * ORDERS_OF_AN_ITEM:,}", f"{took.wall:.1f}", f"{took.cpu:.1f}"))
    finally:
        stop_spark()
    report.rows(["in gold", "corrected", "seconds", "CPU s"], rows, title="Orders whose item had another price")


def correct(spark: SparkSession, settings: Settings, orders: int, rounds: int) -> Lap:
    """The median time, after a round that warms the process up."""
    items = orders // ORDERS_OF_AN_ITEM
    land(spark, settings, "users", range(1), {"id": F.col("id")})
    land(spark, settings, "items", range(items), {"id": F.col("id"), "price": F.lit(0.5)})
    fact = {"invoiceId": F.col("id"), "lineItemId": F.lit(1), "userId": F.lit(0), "price": F.lit(1.5)}
    fact |= {"itemId": F.floor(F.col("id") / ORDERS_OF_AN_ITEM)}
    fact |= {"createdAt": F.lit(START) + F.floor(F.col("id") / ORDERS_OF_A_DAY) * DAY}
    land(spark, settings, "orders", range(orders), fact)
    merge_and_enrich(spark, settings)
    laps = []
    for number in range(1 + rounds):
        first = items + number * ITEMS
        late = {"id": F.col("id") - items, "price": F.lit(2.5)}
        land(spark, settings, "items", range(first, first + ITEMS), late)
        with lap() as measured:
            merge_and_enrich(spark, settings)
        gold = read_table(spark, settings, ORDERS.gold_table)
        corrected = gold.where("item.price = 2.5").count()
        assert corrected == (number + 1) * ITEMS * ORDERS_OF_AN_ITEM, f"{corrected:,} were corrected"
        laps.append(measured)
    report.balances(prove(spark, settings))
    return middle(laps[1:])


if __name__ == "__main__":
    typer.run(main)
