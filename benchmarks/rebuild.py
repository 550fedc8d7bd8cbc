"""The time in which gold is made again from bronze: where nothing differs, and where each order gets another value.

    .venv/bin/python -m benchmarks rebuild [--orders 200000] [--rounds 2]

The orders are enriched once, which is measured too. Then `lakehouse rebuild` makes gold again with the same columns,
and with one that has another value in each order. A tenth of the orders repeat a key, and one of a thousand is
malformed. No broker is needed, as Spark writes the messages.
"""

from dataclasses import replace
from typing import Annotated

import typer
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, caught_up, lakes, land, lap, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.jobs.rebuild import Wanted, rebuild
from pulsar_lakehouse.jobs.steps import enriching, merging, reconcile_all
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import ENTITIES

USERS, ITEMS = 10_000, 20_000
ORDERS_OF_A_DAY, DAY = 10_000, 86_400_000


def main(
    orders: Annotated[int, typer.Option(help="Orders in bronze.")] = 200_000,
    rounds: Annotated[int, typer.Option(help="Repetitions; medians are shown.")] = 2,
) -> None:
    with open_lake() as outer:
        lake = lakes(outer, (orders,))[orders]
        fill(lake, orders)
        caught_up(lake, merging(lake, ENTITIES))
        rows = [("enriched at first", *shown(caught_up(lake, enriching(lake, [ORDERS])), orders))]
        same, other = (ORDERS for _ in range(rounds)), (with_number(number) for number in range(rounds))
        for name, declared in {"rebuilt, nothing differs": same, "rebuilt, each order differs": other}.items():
            rows.append((name, *shown(middle([rebuilt(lake, each) for each in declared]), orders)))
        report.reconciliation(reconcile_all(lake))
    report.rows(["gold", "seconds", "orders/s", "CPU us an order"], rows, title=f"{orders:,} orders")


def fill(lake: Lake, orders: int) -> None:
    land(lake, "users", range(USERS), {"id": F.col("id")})
    land(lake, "items", range(ITEMS), {"id": F.col("id"), "price": F.lit(0.5)})
    number = F.col("id") - F.when(F.col("id") % 10 == 9, 1).otherwise(0)
    fact = {"invoiceId": number, "lineItemId": F.lit(1), "userId": F.col("id") % USERS, "itemId": F.col("id") % ITEMS}
    fact |= {"price": F.when(F.col("id") % 1000 == 7, -1.5).otherwise(1.5)}
    fact |= {"createdAt": F.lit(START) + F.floor(F.col("id") / ORDERS_OF_A_DAY) * DAY}
    land(lake, "orders", range(orders), fact)


def with_number(number: int) -> Enrichment:
    """Orders with an item's name that no order had before."""
    return replace(ORDERS, columns={**ORDERS.columns, "item_name": f"'item {number}'"})


def rebuilt(lake: Lake, declared: Enrichment) -> Lap:
    with lap() as measured:
        for line in rebuild(lake, Wanted(entities=(), enrichments=(declared,), sql_tables=())):
            report.say(line)
    return measured


def shown(measured: Lap, orders: int) -> tuple[str, ...]:
    return f"{measured.wall:.1f}", *measured.rates(orders)
