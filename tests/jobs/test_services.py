"""Facts that ask a service: whatever it does, and wherever a run crashes, the tables are as the oracle says."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic
from pulsar_lakehouse.bronze import services
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs import questions
from pulsar_lakehouse.jobs.questions import question, unanswered
from pulsar_lakehouse.jobs.rebuild import Wanted, rebuild
from pulsar_lakehouse.jobs.steps import ask_services, enriching, landing_services, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.records import step_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests import oracle_services as oracle
from tests.crashes import (
    ADD_TO_GOLD,
    CORRECT_GOLD,
    END_WAITING,
    MERGE_LATEST,
    Write,
    crash_after,
)
from tests.http_service import Geocoder, geocode_at, geocoder
from tests.lake import land_literally, own_home
from tests.oracle import Message, Position
from tests.oracle_services import Answer, Fact

KEEP_ANSWERS = Write("append_arrow", r"bronze\.geocode")
CRASHES = [KEEP_ANSWERS, MERGE_LATEST, END_WAITING, ADD_TO_GOLD, CORRECT_GOLD]
ADDRESSES = [
    "Rua A 1",
    "Torstr. 1",
    "elsewhere",
    "flaky",
    "nonsense",
    "nonsense as text",
    "fails",
    "n1",
    "n2",
    "n3",
    "slow",
    None,
]
NOON = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)


@pytest.fixture
def server() -> Iterator[Geocoder]:
    with geocoder() as started:
        yield started


def project(lake: Lake, folder: Path) -> Lake:
    run = lake.settings.run.model_copy(update={"retries": 0})
    return Lake(lake.spark, own_home(lake.settings, folder / "home").model_copy(update={"run": run}))


def declared(service: Service) -> Pipeline:
    places = Entity(source=service, key="address", columns="address, city, lat")
    lookups = (
        Lookup(entity=places, on="address", name="place"),
        Lookup(entity=places, on="target", name="target_place", required=False),
    )
    orders = Enrichment(
        topic=Topic("orders", "id BIGINT NOT NULL, address STRING, target STRING, at TIMESTAMP NOT NULL"),
        columns="id, address, target, at AS ordered_at",
        keys=("id",),
        event_time="ordered_at",
        day="order_date",
        lookups=lookups,
    )
    return Pipeline(entities=(places,), enrichments=(orders,), sql_tables=())


def message(fact: Fact) -> Message:
    payload = json.dumps(fact._asdict() | {"at": fact.at.isoformat()}).encode()
    return Message("orders", Position(0, 1, fact.id, -1), None, payload, fact.at, fact.at)


def run(lake: Lake, pipeline: Pipeline, facts: Sequence[Fact] = ()) -> None:
    """As `run_all` does, without a broker."""
    land_literally(lake, [message(fact) for fact in facts], [pipeline.enrichments[0].topic])
    [asks] = landing_services(lake, pipeline, pipeline.services)
    catch_up(lake.settings, [asks])
    catch_up(lake.settings, merging(lake, pipeline.entities))
    catch_up(lake.settings, enriching(lake, pipeline.enrichments))
    list(ask_services(lake, pipeline, {"geocode": asks}))


def answers(home: Settings) -> list[Answer]:
    text = "decode(payload)::JSON"
    rows = query(home, f"SELECT key, event_time, {text} ->> 'city' FROM bronze.geocode ORDER BY event_time").fetchall()
    return [Answer(key, at, city, key.startswith("nonsense")) for key, at, city in rows]


def tables(home: Settings) -> tuple[dict[int, tuple[str | None, ...]], dict[int, str]]:
    columns = "id, place.address, place.city, target_place.address, target_place.city"
    gold = {id: tuple(row) for id, *row in query(home, f"SELECT {columns} FROM gold.enriched_orders").fetchall()}
    return gold, dict(query(home, "SELECT id, reason FROM quarantine.waiting_orders").fetchall())


def calls(server: Geocoder) -> list[tuple[str, datetime]]:
    began = datetime.now(UTC) - timedelta(seconds=time.monotonic())
    times = (began + timedelta(seconds=each) for each in server.times)
    return list(zip(server.calls, times, strict=True))


def test_tables_are_those_of_the_oracle_whatever_the_service_does_and_wherever_a_run_crashes(
    lake: Lake, server: Geocoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run has new facts, and crashes after another write. A rebuild gives the same rows, and asks nobody."""
    chance, own = random.Random(3), project(lake, tmp_path)
    pipeline = declared(geocode_at(server.url, retries=2))
    places, orders = pipeline.entities[0], pipeline.enrichments[0]
    drawn = [(chance.choice(ADDRESSES), chance.choice(ADDRESSES)) for _ in range(30)]
    facts = [Fact(id, *addresses, NOON) for id, addresses in enumerate(drawn, 1)]
    for place, write in enumerate(CRASHES):
        server.is_down = place == 1
        with crash_after(write), suppress(Exception):
            run(own, pipeline, facts[place * 5 : place * 5 + 5])
    run(own, pipeline, facts[len(CRASHES) * 5 :])
    kept = answers(own.settings)
    expected = oracle.tables(facts, kept)
    before = tables(own.settings)
    assert before == expected[:2]
    assert {"fails", "nonsense", "nonsense as text"} == expected.lacking
    assert oracle.asked_in_vain(calls(server), kept) == []
    assert unanswered(own.settings, pipeline, places) == ["fails"]
    assert question(own.settings, pipeline, places) is None
    assert step_record(own.settings, "land geocode").failure.startswith(
        "land geocode: service geocode: fails has no answer: HTTPStatusError: Server error '503 Service Unavailable'"
    )
    malformed = "SELECT key, reason FROM quarantine.malformed WHERE topic = 'geocode' ORDER BY key"
    reasons = [("nonsense", "lat is no double: north"), ("nonsense as text", "not a JSON object")]
    assert query(own.settings, malformed).fetchall() == reasons
    assert (reconcile_entity(own, places).holds, reconcile_facts(own, orders).holds) == (True, True)
    asked = len(server.calls)
    list(rebuild(own, Wanted(entities=(places,), enrichments=(orders,), sql_tables=())))
    assert (tables(own.settings), len(server.calls)) == (before, asked)

    assert sorted(unanswered(own.settings, pipeline, places, again=True)) == ["fails", "nonsense", "nonsense as text"]
    shift(monkeypatch, timedelta(days=1))
    assert sorted(unanswered(own.settings, pipeline, places)) == ["fails", "nonsense", "nonsense as text"]


def shift(patch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Let it be later for those who ask."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + by

    patch.setattr(services, "datetime", Later)
    patch.setattr(questions, "datetime", Later)


def test_an_old_answer_is_asked_for_again_by_newer_facts_alone(
    lake: Lake, server: Geocoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of 10 days ago stays with the facts of that time. A fact of tomorrow asks tomorrow."""
    own, now, cache = project(lake, tmp_path), datetime.now(UTC), timedelta(days=10)
    pipeline = declared(geocode_at(server.url, cache_days=10))
    facts = [Fact(1, "counted", None, now), Fact(2, "counted", "counted", now + timedelta(days=11))]
    run(own, pipeline, facts)
    assert tables(own.settings) == oracle.tables(facts, answers(own.settings), cache=cache)[:2]
    assert (server.calls, unanswered(own.settings, pipeline, pipeline.entities[0])) == (["counted"], [])
    shift(monkeypatch, timedelta(days=11))
    run(own, pipeline)
    run(own, pipeline)
    expected = oracle.tables(facts, answers(own.settings), cache=cache)
    assert tables(own.settings) == expected[:2]
    assert expected.gold == {1: ("counted", "1", None, None), 2: ("counted", "2", "counted", "2")}
    assert (server.calls, unanswered(own.settings, pipeline, pipeline.entities[0])) == (["counted"] * 2, [])
