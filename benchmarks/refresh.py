"""Refresh SQL tables after a small change: only what it touches, compared with a full refresh.

    .venv/bin/python -m benchmarks refresh [--orders 1000000] [--changes 1000] [--rounds 3]

One table has orders of 20 categories and 30 days, partitioned by day like gold. `changes` orders of the last two hours
get another price. Then each SQL table of the shop is refreshed. After as many other changes, it is refreshed in full.
No broker is needed.
"""

from typing import Annotated

import typer
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, lap, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.gold.sql.refresh import refresh
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import SQL_TABLES

ORDERS = Table(
    name="gold.enriched_orders",
    columns="id BIGINT, price DOUBLE, created_at TIMESTAMP, item STRUCT<category: STRING>, order_date DATE",
    partition_by=("order_date",),
    properties={"delta.enableChangeDataFeed": "true"},
)
SPAN = 30 * 24 * 3600


def main(
    orders: Annotated[int, typer.Option(help="Orders in gold.")] = 1_000_000,
    changes: Annotated[int, typer.Option(help="Orders whose price changes.")] = 1_000,
    rounds: Annotated[int, typer.Option(help="Repetitions; medians are shown.")] = 3,
) -> None:
    laps: dict[str, list[tuple[Lap, Lap]]] = {table.name: [] for table in SQL_TABLES}
    touched = {}
    with open_lake() as lake:
        _fill(lake, orders)
        for table in SQL_TABLES:
            refresh(lake, table)
        for number in range(rounds + 1):  # the first round is warm-up
            took: dict[str, list[Lap]] = {table.name: [] for table in SQL_TABLES}
            for full in (False, True):
                _change(lake, orders, changes, 2 * number + full)
                for table in SQL_TABLES:
                    with lap() as measured:
                        done = refresh(lake, table, full=full)
                    took[table.name].append(measured)
                    if not full:
                        touched[table.name] = done.reason
            if number:
                for name, (part, whole) in took.items():
                    laps[name].append((part, whole))
    rows = []
    for name, pairs in laps.items():
        part, whole = map(middle, zip(*pairs, strict=True))
        short = name.removeprefix("gold."), touched[name].removesuffix(" touched")
        rows.append([*short, *part.seconds(), *whole.seconds(), f"{part.wall / whole.wall:.2f}"])
    report.rows(["table", "touched", "s", "CPU s", "full: s", "CPU s", "ratio"], rows)


def _fill(lake: Lake, orders: int) -> None:
    lake.create(ORDERS)
    noise = F.pmod(F.xxhash64("id"), F.lit(1_000_000))
    second = F.floor(F.col("id") * (SPAN / orders)).cast("long")
    rows = lake.spark.range(orders).select(
        "id",
        (noise % 10_000 / 100).alias("price"),
        F.timestamp_seconds(second + F.lit(START // 1000)).alias("created_at"),
        F.struct(F.concat(F.lit("category "), (noise % 20).cast("string")).alias("category")).alias("item"),
    )
    lake.table(ORDERS.name).append(rows.withColumn("order_date", F.to_date("created_at")))


def _change(lake: Lake, orders: int, changes: int, number: int) -> None:
    """Change about `changes` of the last two hours' orders, evenly spread, and others for each `number`."""
    last = orders * 2 * 3600 // SPAN
    step = max(last // changes, 1)
    lake.table(ORDERS.name).delta.update(
        f"id >= {orders - last} AND id % {step} = {number % step}", {"price": F.col("price") + 1}
    )
