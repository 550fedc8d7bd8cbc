"""Invoices joined with their payments within ten minutes, beside Spark's own join of two streams.

    .venv/bin/python -m benchmarks interval_join [--invoices 1000000] [--rounds 10]

Both read the same bronze tables, which grow between rounds as time passes: 18 of 20 invoices are paid in time, one late
and one never. This pipeline keeps payments in silver, and invoices that wait for them in quarantine. Spark's join keeps
both in a state store (RocksDB), with watermarks, as its guide shows. Each has a JVM of its own, of which the largest
resident memory counts. No broker is needed, as Spark writes the messages.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from typing import Annotated
from unittest.mock import patch

import psutil
import typer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.bench import START, Lap, bronze_rows, caught_up, emptied_home, lap, open_lake, total
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.enrichment import matches
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake

MINUTES, LATENESS = 10, 5
APART = 10
"""Milliseconds between two invoices."""
PAYMENTS = Entity(
    topic=Topic("payments", "id BIGINT NOT NULL, invoiceId BIGINT, cents BIGINT, paidAt TIMESTAMP_MILLIS"),
    key="id",
    columns="id, invoiceId AS invoice_id, cents, paidAt AS paid_at",
    keeps_history=False,
)
INVOICES = Enrichment(
    topic=Topic("invoices", "id BIGINT NOT NULL, cents BIGINT, at TIMESTAMP_MILLIS NOT NULL"),
    columns="id, cents, at",
    keys=("id",),
    event_time="at",
    day="day",
    lookups=(),
    matches=(
        Match(
            entity=PAYMENTS,
            on="id",
            by="invoice_id",
            time="paid_at",
            within=f"{MINUTES} minutes",
            lateness=f"{LATENESS} minutes",
            required=False,
            name="payment",
        ),
    ),
)
TOPICS = (PAYMENTS.topic, INVOICES.topic)
Times = list[tuple[int, int]]
"""When each round begins and ends, in epoch milliseconds."""


def main(
    invoices: Annotated[int, typer.Option(help="Invoices, and nearly as many payments.", min=1_000)] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds in which they come.", min=1)] = 10,
) -> None:
    step = invoices * APART // rounds
    times = [(START + number * step, START + (number + 1) * step) for number in range(rounds)]
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        rows = [processes.submit(measured, name, invoices, times).result() for name in JOINS]
    named = ["", "with payment", "without", "s", "CPU s", "invoices/s", "CPU µs an invoice"]
    named += ["s, last round", "CPU s", "MiB", "state at the end"]
    report.rows(named, rows, title=f"{invoices:,} invoices in {rounds} rounds, with their payments")


def measured(name: str, invoices: int, times: Times) -> tuple[str, ...]:
    """A row of the figures of one join."""
    with open_lake(emptied_home()) as lake:
        for topic in TOPICS:
            lake.create(bronze_table(topic))
        with largest_memory() as memory:
            laps, matched, left, state = JOINS[name](lake, invoices, times)
    ran = total(laps)
    rates = (*ran.seconds(), *ran.rates(invoices), *laps[-1].seconds())
    return name, f"{matched:,}", f"{left:,}", *rates, f"{memory[0] / 2**20:,.0f}", state


def land_round(lake: Lake, invoices: int, since: int, until: int) -> None:
    """The messages of both topics whose time is in the round."""
    at, kind = F.lit(START) + F.col("id") * APART, F.pmod(F.xxhash64("id"), F.lit(20))
    delay = F.pmod(F.xxhash64("id", F.lit(1)), F.lit(MINUTES * 60_000))
    paid = at + delay + F.when(kind == 1, MINUTES * 60_000).otherwise(0)
    payment = {"id": F.col("id"), "invoiceId": F.col("id"), "cents": F.lit(100), "paidAt": paid}
    _append(lake, "payments", range(invoices), payment, paid, since, until, is_paid=kind != 0)
    first, last = (min((end - START) // APART, invoices) for end in (since, until))
    _append(lake, "invoices", range(first, last), {"id": F.col("id"), "cents": F.lit(100), "at": at}, at, since, until)


def _append(
    lake: Lake,
    topic: str,
    ids: range,
    fields: dict[str, Column],
    at: Column,
    since: int,
    until: int,
    is_paid: Column | None = None,
) -> None:
    payload = F.to_json(F.struct(*(value.alias(name) for name, value in fields.items())))
    if is_paid is not None:  # a message without a payload is left out below
        payload = F.when(is_paid, payload)
    rows = bronze_rows(lake.spark, topic, ids, key=F.col("id"), payload=payload, event_time=F.timestamp_millis(at))
    in_time = F.col("event_time").between(moment(since), moment(until - 1))
    lake.table(f"bronze.{topic}").append(rows.where(in_time & F.col("payload").isNotNull()))


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


Outcome = tuple[list[Lap], int, int, str]
"""The laps, the invoices with and without payment, and the state that is left."""


def enrich(lake: Lake, invoices: int, times: Times) -> Outcome:
    laps = []
    for since, until in times:
        land_round(lake, invoices, since, until)
        with patch.object(matches, "now", lambda until=until: moment(until)):
            laps.append(
                total([caught_up(lake, merging(lake, [PAYMENTS])), caught_up(lake, enriching(lake, [INVOICES]))])
            )
    assert reconcile_facts(lake, INVOICES).holds
    matched, left = split(lake.table(INVOICES.gold_table).read(), "payment")
    names = ((PAYMENTS.table.name, "payments"), (INVOICES.waiting.name, "waiting invoices"))
    return laps, matched, left, ", ".join(f"{lake.table(name).read().count():,} {what}" for name, what in names)


def split(rows: DataFrame, column: str) -> tuple[int, int]:
    """The numbers of rows with and without a value."""
    [[some, none]] = rows.agg(F.count_if(F.col(column).isNotNull()), F.count_if(F.col(column).isNull())).collect()
    return some, none


def join_streams(lake: Lake, invoices: int, times: Times) -> Outcome:
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    lake.spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    path, laps, state = f"{lake.settings.home}/joined", [], ""
    for since, until in times:
        land_round(lake, invoices, since, until)
        with lap() as lasted:
            writer = joined(lake).writeStream.format("delta").trigger(availableNow=True)
            query = writer.option("checkpointLocation", f"{path}.checkpoint").start(path)
            query.awaitTermination()
        laps.append(lasted)
        held = [each.stateOperators[0] for each in query.recentProgress if each.stateOperators]
        state = ", ".join(f"{each.numRowsTotal:,} rows" for each in held[-1:])
    matched, left = split(lake.spark.read.format("delta").load(path), "payment_id")
    return laps, matched, left, state


JOINS = {"this pipeline": enrich, "Spark's join": join_streams}


def joined(lake: Lake) -> DataFrame:
    """As in Spark's guide: an outer join with watermarks."""
    of_invoices = read_stream(lake, INVOICES.topic, "at").select("id", "cents", "at")
    of_payments = read_stream(lake, PAYMENTS.topic, "paidAt").select(
        F.col("id").alias("payment_id"), "invoiceId", "paidAt"
    )
    near = f"id = invoiceId AND paidAt >= at AND paidAt <= at + INTERVAL {MINUTES} MINUTES"
    return of_invoices.join(of_payments, F.expr(near), "leftOuter")


def read_stream(lake: Lake, topic: Topic, time: str) -> DataFrame:
    plain = topic_fields(topic)
    rows = (
        lake.table(topic.bronze_table).stream().select(F.from_json(F.col("payload").cast("string"), plain).alias("v"))
    )
    fields = rows.select("v.*").withColumn(time, F.timestamp_millis(F.col(time)))
    return fields.withWatermark(time, f"{LATENESS} minutes")


def topic_fields(topic: Topic) -> str:
    """The fields, of which all are numbers in the payload."""
    return ", ".join(f"{name} BIGINT" for name in topic.fields.names)


@contextmanager
def largest_memory() -> Iterator[list[int]]:
    """A list with the most resident bytes that this process and its children have had in the block."""
    most, ended, this = [0], threading.Event(), psutil.Process()

    def watch() -> None:
        while not ended.wait(timedelta(milliseconds=500).total_seconds()):
            found = 0
            for each in (this, *this.children(recursive=True)):
                try:
                    found += each.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            most[0] = max(most[0], found)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield most
    ended.set()
    watcher.join()
