"""What decoding costs: CPU microseconds an order in JSON; none, few or all are malformed, or many in a message.

    .venv/bin/python -m benchmarks decode [--orders 1000000] [--hostile 100000] [--rounds 3]

No broker is needed, as Spark writes the messages. The CPU time of reading the bronze table alone is subtracted. For
rejected messages, it includes that of the reasons.
"""

from collections.abc import Callable
from typing import Annotated

import typer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, bronze_rows, lap, middle, open_lake
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.decoding import explain
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.tables.lake import Lake
from tests.gold.enrichment.test_properties import of_many
from tests.hostile import hostile_messages
from tests.lake import bronze_row
from tests.shop import ENRICHMENTS

[ORDERS] = ENRICHMENTS
MANY = of_many(ORDERS)


def main(
    orders: Annotated[int, typer.Option(help="Orders in JSON.")] = 1_000_000,
    hostile: Annotated[int, typer.Option(help="Random hostile messages.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Repetitions; medians are shown.")] = 3,
) -> None:
    with open_lake() as lake:
        rows = []
        for name, messages, count, facts in (
            ("as declared", _orders(lake, orders, F.lit(False)), orders, ORDERS),
            ("one in 100 malformed", _orders(lake, orders, F.col("id") % 100 == 0), orders, ORDERS),
            ("all malformed", _orders(lake, orders // 10, F.lit(True)), orders // 10, ORDERS),
            ("hostile", _hostile(lake, hostile), hostile, ORDERS),
            ("10 in a message", _in_one(lake, orders, 10), orders, MANY),
            ("10,000 in a message", _in_one(lake, orders, 10_000), orders, MANY),
        ):
            stored = _stored(lake, name, messages)
            plain = _measured(stored, rounds)
            decoded = stored.transform(decode_facts, enrichment=facts)
            reasons = decoded.where("reason IS NOT NULL").transform(explain, decoding=facts.decoding)
            for what, frame in (("decoded", decoded), ("reasons", reasons)):
                took = _measured(frame, rounds)
                rows.append((name, what, took.seconds()[0], f"{(took.cpu - plain.cpu) / count * 1e6:.2f}"))
    report.rows(["orders", "", "seconds", "CPU µs/order"], rows, title="Decoding")


def _orders(lake: Lake, count: int, is_malformed: Column) -> DataFrame:
    id = F.col("id")
    payload = _order(id, is_malformed)
    return bronze_rows(lake.spark, "orders", range(count), key=id, payload=payload, event_time=F.lit(None))


def _in_one(lake: Lake, count: int, many: int) -> DataFrame:
    """So many orders, `many` in a message."""
    first = F.col("id") * many
    orders = F.transform(F.sequence(first, first + many - 1), lambda id: _order(id, F.lit(False)))
    payload = F.concat(F.lit("["), F.concat_ws(",", orders), F.lit("]"))
    messages = range(count // many)
    return bronze_rows(lake.spark, "orders", messages, key=F.lit(None), payload=payload, event_time=F.lit(None))


def _order(id: Column, is_malformed: Column) -> Column:
    fields = {
        "invoiceId": id,
        "lineItemId": F.when(is_malformed, "one").otherwise(id.cast("string")),
        "userId": id % 100_000,
        "itemId": id % 2_000,
        "itemName": F.concat(F.lit("pie "), id % 100),
        "itemCategory": F.lit("toys"),
        "price": id % 1_000 / 10,
        "createdAt": F.lit(START) + id,
        "paidAt": F.lit(START) + id + 60_000,
    }
    text = F.to_json(F.struct(*(value.alias(name) for name, value in fields.items())))
    return F.regexp_replace(text, r'"lineItemId":"(\d+)"', r'"lineItemId":$1')


def _hostile(lake: Lake, count: int) -> DataFrame:
    sent = (each for each in hostile_messages(seed=7, count=count) if each.topic == "orders")
    rows = [bronze_row(each.message(place)) for place, each in enumerate(sent)]
    return lake.spark.createDataFrame(rows, bronze_table(ORDERS.topic).ddl)


def _stored(lake: Lake, name: str, messages: DataFrame) -> DataFrame:
    path = f"{lake.settings.home}/{name.replace(' ', '-')}"
    messages.write.format("delta").mode("overwrite").save(path)
    return lake.spark.read.format("delta").load(path)


def _measured(frame: DataFrame, rounds: int) -> Lap:
    run: Callable[[], None] = frame.write.format("noop").mode("overwrite").save
    run()
    laps = []
    for _ in range(rounds):
        with lap() as took:
            run()
        laps.append(took)
    return middle(laps)
