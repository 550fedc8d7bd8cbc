"""The time in which late prices correct 1,000 orders in gold, of 1,000,000 or of 10,000.

    .venv/bin/python -m benchmarks correct [--orders 1000000] [--rounds 3]

Each day has 10,000 orders. Each item has ten orders, which with 1,000,000 are on ten days. The time is for merging 100
items and for enriching: two batches. No broker is needed, as Spark writes the messages.
"""

from itertools import product
from typing import Annotated

import typer
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, lakes, land, lap, merge_and_enrich, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.jobs.steps import reconcile_all
from pulsar_lakehouse.tables.lake import Lake

ORDERS_OF_AN_ITEM, ITEMS = 10, 100
ORDERS_OF_A_DAY, DAY = 10_000, 86_400_000


def main(
    orders: Annotated[int, typer.Option(help="Orders in gold.", min=500_000)] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Repetitions; medians are shown.", min=1, max=4)] = 3,
) -> None:
    with open_lake() as outer:
        by_size = lakes(outer, (orders // 100, orders))
        for size, lake in by_size.items():
            fill(lake, size)
        laps: dict[int, list[Lap]] = {size: [] for size in by_size}
        for number, (size, lake) in product(range(1 + rounds), by_size.items()):  # the first round is warm-up
            laps[size].append(correct(lake, size // ORDERS_OF_AN_ITEM, number))
        for lake in by_size.values():
            report.reconciliation(reconcile_all(lake))
    corrected = f"{ITEMS * ORDERS_OF_AN_ITEM:,}"
    rows = [(f"{size:,}", corrected, *middle(found[1:]).seconds()) for size, found in laps.items()]
    report.rows(["in gold", "corrected", "seconds", "CPU s"], rows, title="Orders whose item had another price")


def fill(lake: Lake, orders: int) -> None:
    items = orders // ORDERS_OF_AN_ITEM
    land(lake, "users", range(1), {"id": F.col("id")})
    land(lake, "items", range(items), {"id": F.col("id"), "price": F.lit(0.5)})
    fact = {"invoiceId": F.col("id"), "lineItemId": F.lit(1), "userId": F.lit(0), "price": F.lit(1.5)}
    fact |= {"itemId": F.col("id") % items}
    fact |= {"createdAt": F.lit(START) + F.floor(F.col("id") / ORDERS_OF_A_DAY) * DAY}
    land(lake, "orders", range(orders), fact)
    merge_and_enrich(lake)


def correct(lake: Lake, items: int, number: int) -> Lap:
    first = items + number * ITEMS
    land(lake, "items", range(first, first + ITEMS), {"id": F.col("id") - items, "price": F.lit(2.5)})
    with lap() as measured:
        merge_and_enrich(lake)
    corrected = lake.table(ORDERS.gold_table).read().where("item.price = 2.5").count()
    assert corrected == (number + 1) * ITEMS * ORDERS_OF_AN_ITEM, f"{corrected:,} are corrected"
    return measured
