"""Refresh SQL tables after a small change: only what it touches, compared with a full refresh.

    .venv/bin/python benchmarks/refresh.py [--orders 1000000] [--changes 1000] [--rounds 3]

One table has orders of 20 categories and 30 days, partitioned by day like gold. `changes` orders of the last two hours
get another price. Then each SQL table of the shop is refreshed. After as many other changes, it is refreshed in full.
No broker is needed.
"""

import sys
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parent.parent))

import typer
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, emptied_home, lap, middle
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.gold.sql.refresh import refresh
from pulsar_lakehouse.spark.session import start_spark, stop_spark
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
    settings = emptied_home()
    spark = start_spark(settings)
    tables = SQL_TABLES
    laps: dict[str, list[tuple[Lap, Lap]]] = {table.name: [] for table in tables}
    touched = {}
    try:
        _fill(Lake(spark, settings), orders)
        for table in tables:
            refresh(Lake(spark, settings), table)
        for number in range(rounds + 1):  # the first round is warm-up
            took: dict[str, list[Lap]] = {table.name: [] for table in tables}
            for full in (False, True):
                _change(Lake(spark, settings), orders, changes, 2 * number + full)
                for table in tables:
                    with lap() as measured:
                        done = refresh(Lake(spark, settings), table, full=full)
                    took[table.name].append(measured)
                    if not full:
                        touched[table.name] = done.reason
            if number:
                for name, (part, whole) in took.items():
                    laps[name].append((part, whole))
    finally:
        stop_spark()
    rows = []
    for name, pairs in laps.items():
        part, whole = (middle([each[side] for each in pairs]) for side in (0, 1))
        figures = (f"{value:.1f}" for value in (part.wall, part.cpu, whole.wall, whole.cpu))
        short = name.removeprefix("gold."), touched[name].removesuffix(" touched")
        rows.append([*short, *figures, f"{part.wall / whole.wall:.2f}"])
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


if __name__ == "__main__":
    typer.run(main)
