"""Landing messages that were sent in transactions, compared with the same messages sent without.

The broker adds a marker for each transaction.

.venv/bin/python -m benchmarks transactions [--transactions 100000] [--each 10] [--rounds 3]
"""

import shutil
from collections.abc import Iterator
from typing import Annotated

import typer

from benchmarks.bench import Lap, caught_up, emptied_home, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.jobs.steps import landing
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.java_client import java_client, message

WITHOUT, WITHIN = (Topic(name, "id BIGINT") for name in ("without", "within"))
SLICE = 50_000
"""Messages that the Java client sends at once."""


def main(
    transactions: Annotated[int, typer.Option(help="Transactions, each of which has one marker.")] = 100_000,
    each: Annotated[int, typer.Option(help="Messages in each transaction.")] = 10,
    rounds: Annotated[int, typer.Option(help="Repetitions, in turn, after one warm-up.")] = 3,
) -> None:
    emptied = emptied_home()
    settings = emptied.model_copy(update={"pulsar": emptied.pulsar.model_copy(update={"partitions": 1})})
    try:
        send(settings, transactions * each, each)
        with open_lake(settings) as lake:
            laps: dict[str, list[Lap]] = {topic.name: [] for topic in (WITHOUT, WITHIN)}
            for _ in range(rounds + 1):
                for topic in (WITHOUT, WITHIN):
                    laps[topic.name].append(land_afresh(lake, topic, transactions * each))
    finally:
        broker.stop(settings)
    show(transactions, each, {name: middle(found[1:]) for name, found in laps.items()})


def send(settings: Settings, messages: int, each: int) -> None:
    endpoint = broker.start(settings)
    create_topics([WITHOUT, WITHIN], endpoint, settings)
    with java_client(endpoint, settings, transactions=True) as client:
        for payloads in slices(messages):
            name = f"persistent://{settings.pulsar.namespace}/"
            client.send(f"{name}{WITHOUT.name}", [message(payload) for payload in payloads])
            client.send_committed(f"{name}{WITHIN.name}", payloads, each=each)


def slices(messages: int) -> Iterator[list[bytes]]:
    for start in range(0, messages, SLICE):
        yield [b'{"id": %d, "note": "%s"}' % (id, b"x" * 100) for id in range(start, min(start + SLICE, messages))]


def land_afresh(lake: Lake, topic: Topic, messages: int) -> Lap:
    """Land the whole topic in an empty table."""
    for folder in (lake.settings.table_path(topic.bronze_table), lake.settings.checkpoint_path(topic.bronze_table)):
        shutil.rmtree(folder, ignore_errors=True)
    found = caught_up(lake, landing(lake, [topic]))
    assert lake.table(topic.bronze_table).read().count() == messages
    return found


def show(transactions: int, each: int, laps: dict[str, Lap]) -> None:
    rows = [
        (f"{name} transactions", *lap.seconds(), f"{lap.wall / laps[WITHOUT.name].wall:.2f}")
        for name, lap in laps.items()
    ]
    title = f"{transactions:,} transactions of {each} messages; medians"
    report.rows(["", "seconds", "CPU seconds", "ratio"], rows, title=title)
