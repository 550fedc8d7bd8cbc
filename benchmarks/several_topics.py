"""What a round of landing costs with several topics in one table: one, ten and a hundred.

    .venv/bin/python -m benchmarks several_topics [--messages 1000] [--rounds 5]

Each topic has one partition. A round with news lands the messages, which are spread over all topics; one without finds
that there are none. Neither needs Spark, as the messages are few.
"""

import re
from dataclasses import replace
from typing import Annotated

import typer

from benchmarks.bench import Lap, caught_up, emptied_home, lap, middle, open_lake
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.jobs.steps import landing
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake


def main(
    messages: Annotated[int, typer.Option(help="Of all topics, in each round.")] = 1_000,
    rounds: Annotated[int, typer.Option(help="Repetitions; medians are shown.")] = 5,
) -> None:
    settings = emptied_home()
    settings = settings.model_copy(update={"pulsar": settings.pulsar.model_copy(update={"partitions": 1})})
    try:
        endpoint = broker.start(settings)
        with open_lake(settings) as lake:
            lines = [_measured(lake, endpoint, count, messages, rounds) for count in (1, 10, 100)]
    finally:
        broker.stop(settings)
    columns = ["topics", "with news, s", "CPU s", "without, s", "CPU s", "backlog, s", "CPU s"]
    report.rows(columns, lines, title=f"Rounds of landing {messages:,} messages")


def _measured(lake: Lake, endpoint: Endpoint, count: int, messages: int, rounds: int) -> tuple[str, ...]:
    one = Topic(f"events{count}", "id BIGINT NOT NULL")
    each = [replace(one, topic=f"{one.name}-{number}") for number in range(count)]
    settings, several = lake.settings, replace(one, topic=re.compile(f"{one.name}-.*"))
    create_topics(each, endpoint, settings)
    declared = each[0] if count == 1 else several
    streams = landing(lake, [declared])
    news, idle, asked = list[Lap](), list[Lap](), list[Lap]()
    for _ in range(rounds + 1):
        send(each, messages // count, endpoint, settings)
        news.append(caught_up(lake, streams))
        idle.append(caught_up(lake, streams))
        with lap() as measured:
            topic_status(declared, endpoint, settings)
        asked.append(measured)
    assert lake.table(one.bronze_table).read().count() == (rounds + 1) * messages
    laps = [middle(laps[1:]) for laps in (news, idle, asked)]
    return str(count), *(f"{seconds:.2f}" for lap in laps for seconds in (lap.wall, lap.cpu))


def send(topics: list[Topic], messages: int, endpoint: Endpoint, settings: Settings) -> None:
    payloads = [Message(str(number), b'{"id": %d}' % number, 0) for number in range(messages)]
    for topic in topics:
        produce([(topic, payloads)], endpoint, settings)
