"""The time to retry waiting orders whose users arrive: 1,000 or 100,000 of 1,000,000 orders, or 1,000 of 10,000.

    .venv/bin/python benchmarks/release.py [--waiting 1000000] [--rounds 3]

Each user has ten waiting orders. The time is for merging the users and for enriching: two batches. No broker is needed,
as Spark writes the messages.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer
from pyspark.sql import functions as F

from benchmarks.bench import Lap, emptied_home, lakes, land, lap, merge_and_enrich, middle
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.jobs.steps import reconcile_all
from pulsar_lakehouse.spark.session import start_spark, stop_spark
from pulsar_lakehouse.tables.lake import Lake

ORDERS_OF_A_USER = 10
RETRIED = (1_000, 100_000)


def main(
    waiting: Annotated[int, typer.Option(help="Waiting orders.", min=500_000)] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Repetitions; medians are shown.", min=1, max=3)] = 3,
) -> None:
    few, many = RETRIED
    cases = ((waiting // 100, few), (waiting, few), (waiting, many))
    settings = emptied_home()
    spark = start_spark(settings)
    laps: dict[tuple[int, int], list[Lap]] = {case: [] for case in cases}
    try:
        homes = lakes(Lake(spark, settings), dict.fromkeys(size for size, _ in cases))
        users = dict.fromkeys(homes, 0)
        for size, own in homes.items():
            fill(Lake(spark, own), size)
        for _, (size, retried) in product(range(1 + rounds), cases):  # the first round is warm-up
            laps[size, retried].append(retry(Lake(spark, homes[size]), users[size], retried))
            users[size] += retried // ORDERS_OF_A_USER
        for own in homes.values():
            report.reconciliation(reconcile_all(Lake(spark, own)))
    finally:
        stop_spark()
    rows = []
    for (size, retried), found in laps.items():
        took = middle(found[1:])
        rows.append((f"{size:,}", f"{retried:,}", f"{took.wall:.1f}", f"{took.cpu:.1f}"))
    report.rows(["waiting", "retried", "seconds", "CPU s"], rows, title="Orders that wait for their users")


def fill(lake: Lake, waiting: int) -> None:
    land(lake, "items", range(1), {"id": F.col("id"), "price": F.lit(1.5)})
    fact = {"invoiceId": F.col("id"), "lineItemId": F.lit(1), "itemId": F.lit(0), "price": F.lit(1.5)}
    fact |= {"userId": F.floor(F.col("id") / ORDERS_OF_A_USER)}
    land(lake, "orders", range(waiting), fact)
    merge_and_enrich(lake)


def retry(lake: Lake, first: int, expected: int) -> Lap:
    land(lake, "users", range(first, first + expected // ORDERS_OF_A_USER), {"id": F.col("id")})
    left = lake.table(ORDERS.waiting.name).read().count()
    with lap() as measured:
        merge_and_enrich(lake)
    retried = left - lake.table(ORDERS.waiting.name).read().count()
    assert retried == expected, f"{retried:,} of {expected:,} left quarantine"
    return measured


if __name__ == "__main__":
    typer.run(main)
