"""The time to retry waiting orders whose users arrive: 1,000 or 100,000 of 1,000,000 orders, or 1,000 of 10,000.

    .venv/bin/python -m benchmarks release [--waiting 1000000] [--rounds 3]

Each user has ten waiting orders. The time is for merging the users and for enriching: two batches. No broker is needed,
as Spark writes the messages.
"""

from itertools import product
from typing import Annotated

import typer
from pyspark.sql import functions as F

from benchmarks.bench import Lap, lakes, land, lap, merge_and_enrich, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.jobs.steps import reconcile_all
from pulsar_lakehouse.tables.lake import Lake

ORDERS_OF_A_USER = 10
RETRIED = (1_000, 100_000)


def main(
    waiting: Annotated[int, typer.Option(help="Waiting orders.", min=500_000)] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Repetitions; medians are shown.", min=1, max=3)] = 3,
) -> None:
    few, many = RETRIED
    cases = ((waiting // 100, few), (waiting, few), (waiting, many))
    laps: dict[tuple[int, int], list[Lap]] = {case: [] for case in cases}
    with open_lake() as outer:
        by_size = lakes(outer, (size for size, _ in cases))
        users = dict.fromkeys(by_size, 0)
        for size, lake in by_size.items():
            fill(lake, size)
        for _, (size, retried) in product(range(1 + rounds), cases):  # the first round is warm-up
            laps[size, retried].append(retry(by_size[size], users[size], retried))
            users[size] += retried // ORDERS_OF_A_USER
        for lake in by_size.values():
            report.reconciliation(reconcile_all(lake))
    rows = [(f"{size:,}", f"{retried:,}", *middle(found[1:]).seconds()) for (size, retried), found in laps.items()]
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
