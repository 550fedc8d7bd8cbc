"""Asking a service, and finding out what to ask it: speed, CPU.

    .venv/bin/python -m benchmarks ask_service [--calls 20000] [--kept 1000000]

The service is a coroutine that sleeps for 50 ms, so the least time is that of calls / 100 at a time. Then some of the
keys that facts wait for have no answer, beside many that are kept: how long a look takes that finds these.
"""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import pyarrow as pa
import typer
from deltalake import write_deltalake

from benchmarks.bench import Lap, lap, open_lake
from pulsar_lakehouse.bronze import services
from pulsar_lakehouse.bronze.services import ServiceLanding
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.jobs.questions import unanswered
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import columns_of, stored_table

SECONDS = 0.05
"""That a call takes."""
WAITING = 1_000
"""Keys that facts wait for, of which a tenth has no answer."""


async def score(number: int) -> dict[str, float]:
    await asyncio.sleep(SECONDS)
    return {"score": number / 7}


SCORES = Entity(source=Service(score, returns="score DOUBLE", rate=1_000_000), key="number", columns="number, score")
FACTS = Enrichment(
    topic=Topic("facts", "id BIGINT NOT NULL, at TIMESTAMP NOT NULL"),
    columns="id, at",
    keys=("id",),
    event_time="at",
    day="day",
    lookups=(Lookup(entity=SCORES, on="id"),),
)
DECLARED = Pipeline(entities=(SCORES,), enrichments=(FACTS,), sql_tables=())


def main(
    calls: Annotated[int, typer.Option(help="That are made.")] = 20_000,
    kept: Annotated[int, typer.Option(help="Answers in bronze when a look is taken.")] = 1_000_000,
) -> None:
    with open_lake() as lake:
        services.ASK_SECONDS = 600.0
        asked = _asked(lake, calls)
        looks = _looks(lake, kept, calls)
    lines = [(f"{calls:,} calls", *asked.seconds(), *asked.rates(calls)), (f"a look at {kept:,} answers", *looks)]
    report.rows(["", "seconds", "CPU s", "calls/s", "CPU µs a call"], lines, title="Asking a service")


def _asked(lake: Lake, calls: int) -> Lap:
    assert isinstance(SCORES.source, Service)
    keys = [str(number) for number in range(calls)]
    with lap() as measured:
        ServiceLanding(lake, SCORES.source, lambda: keys)(Permit())
    return measured


def _looks(lake: Lake, kept: int, calls: int) -> tuple[str, ...]:
    settings, name = lake.settings, SCORES.topic.bronze_table
    now = datetime.now(UTC)
    columns = columns_of(stored_table(settings, name))
    numbers = range(calls, kept)
    rows = {
        "topic": ["score"] * len(numbers),
        "ledger_id": [1] * len(numbers),
        "entry_id": list(numbers),
        "key": [str(number) for number in numbers],
        "payload": [b'{"number":%d,"score":0.5}' % number for number in numbers],
        "event_time": [now] * len(numbers),
        "publish_date": [now.date()] * len(numbers),
    }
    given = [
        pa.array(rows[each.name], each.type) if each.name in rows else pa.nulls(len(numbers), each.type)
        for each in columns
    ]
    write_deltalake(settings.table_path(name), pa.Table.from_arrays(given, schema=columns), mode="append")
    missing = pa.list_(pa.struct({"entity": pa.string(), "key": pa.string()}))
    keys = range(kept - WAITING * 9 // 10, kept + WAITING // 10)
    waiting = pa.table({"missing": pa.array([[{"entity": "score", "key": str(key)}] for key in keys], missing)})
    write_deltalake(settings.table_path(FACTS.waiting.name), waiting)
    unanswered(settings, DECLARED, SCORES)
    with lap() as measured:
        assert len(unanswered(settings, DECLARED, SCORES)) == WAITING // 10
    return (*measured.seconds(), "", "")
