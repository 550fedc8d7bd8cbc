"""The scenarios of Spark's AUTO CDC: events of a key, and the versions that they make.

The events of each scenario arrive in several batchings, each for a key of its own. `docs/auto-cdc.md` tells what is
different in AUTO CDC, and has the SQL that makes its periods of our versions.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import create_tables, merge_batch
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home, read
from tests.messages import message
from tests.oracle import Message
from tests.silver.test_merge import bronze

PAGE = Path(__file__).parents[2] / "docs" / "auto-cdc.md"
Event = dict[str, Any]
Version = tuple[Any, ...]
"""From which sequence until which it was valid, and its values, or GONE."""
GONE = "deleted"
ADDRESS = "address STRUCT<street: STRING, zip: BIGINT>"


def entity(name: str, **more: Any) -> Entity:
    return Entity(
        topic=Topic(name, f"id BIGINT NOT NULL, seq BIGINT, op STRING, city STRING, rank STRING, {ADDRESS}"),
        key="id",
        columns="id, seq, city, rank, address",
        sequence_by="seq",
        occurred_at="timestamp_seconds(seq)",
        deleted_at="IF(op = 'delete', timestamp_seconds(seq), NULL)",
        **more,
    )


WHOLE = entity("whole")
PARTIAL = entity("partial", ignore_null_updates=("city", "address"))


def put(seq: int | None, city: str | None = None, rank: str | None = None, **address: Any) -> Event:
    return {"seq": seq, "city": city, "rank": rank, **address}


def delete(seq: int) -> Event:
    return {"seq": seq, "op": "delete"}


class Scenario(NamedTuple):
    name: str
    events: list[Event]
    versions: list[Version]
    periods: list[Version] | None = None
    """What AUTO CDC has as SCD type 2, where that differs. Of what it leaves undefined, it is what we have."""


SCENARIOS = [
    Scenario("an upsert", [put(10, "Rome")], [(10, None, "Rome", None)]),
    Scenario(
        "an update ends the version before it",
        [put(10, "Rome"), put(20, "Oslo")],
        [(10, 20, "Rome", None), (20, None, "Oslo", None)],
    ),
    Scenario(
        "an older version comes after a newer one",
        [put(20, "Oslo"), put(10, "Rome")],
        [(10, 20, "Rome", None), (20, None, "Oslo", None)],
    ),
    Scenario(
        "a late version splits another",
        [put(10, "Rome"), put(30, "Oslo"), put(20, "Bari")],
        [(10, 20, "Rome", None), (20, 30, "Bari", None), (30, None, "Oslo", None)],
    ),
    Scenario(
        "sequences below 0",
        [put(-5, "Rome"), put(0, "Oslo")],
        [(-5, 0, "Rome", None), (0, None, "Oslo", None)],
    ),
    Scenario("an event again", [put(10, "Rome"), put(10, "Rome")], [(10, None, "Rome", None)]),
    Scenario(
        "NULL is a value",
        [put(10, "Rome", "first"), put(20, "Rome"), put(30)],
        [(10, 20, "Rome", "first"), (20, 30, "Rome", None), (30, None, None, None)],
    ),
    Scenario(
        "a delete",
        [put(10, "Rome"), delete(20)],
        [(10, 20, "Rome", None), (20, None, GONE)],
        [(10, 20, "Rome", None)],
    ),
    Scenario(
        "a late upsert before a delete",
        [delete(20), put(10, "Rome")],
        [(10, 20, "Rome", None), (20, None, GONE)],
        [(10, 20, "Rome", None)],
    ),
    Scenario("a delete of what never was", [delete(10)], [(10, None, GONE)], []),
    Scenario(
        "a late delete before all",
        [put(20, "Rome"), delete(10)],
        [(10, 20, GONE), (20, None, "Rome", None)],
        [(20, None, "Rome", None)],
    ),
    Scenario(
        "the same again after a delete",
        [put(10, "Rome"), delete(20), put(30, "Rome")],
        [(10, 20, "Rome", None), (20, 30, GONE), (30, None, "Rome", None)],
        [(10, 20, "Rome", None), (30, None, "Rome", None)],
    ),
    Scenario(
        "a late delete between equal versions",
        [put(10, "Rome"), put(30, "Rome"), delete(20)],
        [(10, 20, "Rome", None), (20, 30, GONE), (30, None, "Rome", None)],
        [(10, 20, "Rome", None), (30, None, "Rome", None)],
    ),
    Scenario(
        "two deletes",
        [put(10, "Rome"), delete(20), delete(30)],
        [(10, 20, "Rome", None), (20, 30, GONE), (30, None, GONE)],
        [(10, 20, "Rome", None)],
    ),
    Scenario(
        "an update that changes nothing",
        [put(10, "Rome"), put(20, "Rome"), put(30, "Oslo")],
        [(10, 20, "Rome", None), (20, 30, "Rome", None), (30, None, "Oslo", None)],
        [(10, 30, "Rome", None), (30, None, "Oslo", None)],
    ),
    Scenario(
        "a late update that changes nothing",
        [put(10, "Rome"), put(30, "Oslo"), put(20, "Rome")],
        [(10, 20, "Rome", None), (20, 30, "Rome", None), (30, None, "Oslo", None)],
        [(10, 30, "Rome", None), (30, None, "Oslo", None)],
    ),
    Scenario(
        "a late version between equal ones",
        [put(10, "Rome"), put(30, "Rome"), put(20, "Oslo")],
        [(10, 20, "Rome", None), (20, 30, "Oslo", None), (30, None, "Rome", None)],
    ),
    Scenario("equal sequences", [put(10, "Rome"), put(10, "Oslo")], [(10, None, "Oslo", None)]),
    Scenario("a delete of equal sequence", [put(10, "Rome"), delete(10)], [(10, None, GONE)], []),
    Scenario("an upsert of equal sequence", [delete(10), put(10, "Rome")], [(10, None, "Rome", None)]),
    Scenario("a sequence that is NULL", [put(None, "Rome"), put(10, "Oslo")], [(10, None, "Oslo", None)]),
]
PARTIAL_SCENARIOS = [
    Scenario(
        "a column keeps its value, and NULL is one of another",
        [put(10, "Rome", "first"), put(20), put(30)],
        [(10, 20, "Rome", "first", None), (20, 30, "Rome", None, None), (30, None, "Rome", None, None)],
    ),
    Scenario(
        "a late version gives what a newer one lacks",
        [put(20, rank="second"), put(10, "Rome", "first")],
        [(10, 20, "Rome", "first", None), (20, None, "Rome", "second", None)],
    ),
    Scenario(
        "a late version replaces what was taken from an older one",
        [put(10, "Rome"), put(30), put(20, "Oslo")],
        [(10, 20, "Rome", None, None), (20, 30, "Oslo", None, None), (30, None, "Oslo", None, None)],
    ),
    Scenario(
        "nothing is taken from before a delete",
        [put(10, "Rome", street="Via"), delete(20), put(30, zip=1), put(40, "Oslo")],
        [
            (10, 20, "Rome", None, {"street": "Via", "zip": None}),
            (20, 30, GONE),
            (30, 40, None, None, {"street": None, "zip": 1}),
            (40, None, "Oslo", None, {"street": None, "zip": 1}),
        ],
    ),
    Scenario(
        "a late delete takes the values away",
        [put(10, "Rome"), put(30), delete(20)],
        [(10, 20, "Rome", None, None), (20, 30, GONE), (30, None, None, None, None)],
    ),
    Scenario(
        "each field of a struct keeps its value",
        [put(10, street="Via", zip=1), put(20, zip=2), put(30, address={}), put(40, street="Gata")],
        [
            (10, 20, None, None, {"street": "Via", "zip": 1}),
            (20, 30, None, None, {"street": "Via", "zip": 2}),
            (30, 40, None, None, {"street": "Via", "zip": 2}),
            (40, None, None, None, {"street": "Gata", "zip": 2}),
        ],
    ),
    Scenario("a struct of NULLs is NULL", [put(10, address={})], [(10, None, None, None, None)]),
    Scenario(
        "a late version has a field that a newer one lacks",
        [put(20, zip=2), put(10, street="Via", zip=1)],
        [(10, 20, None, None, {"street": "Via", "zip": 1}), (20, None, None, None, {"street": "Via", "zip": 2})],
    ),
]
BATCHINGS = ("at once", "one by one", "reversed", "again")


def sent(topic: str, id: int, place: int, event: Event) -> Message:
    """A change that has neither event time nor message key."""
    fields = {name: value for name, value in event.items() if name not in ("street", "zip", "address")}
    leaves = {name: event[name] for name in ("street", "zip") if name in event}
    payload = {"id": id, **fields, "address": event.get("address", leaves or None)}
    return message(topic, payload, key=None, when=None, place=10 * id + place)


def batches_of(batching: str, place: int, events: int) -> list[int]:
    """In which batches an event arrives."""
    if batching == "again":
        return [place, -1]
    return [{"at once": 0, "one by one": place, "reversed": events - 1 - place}[batching]]


def merged(lake: Lake, home: Path, declared: Entity, scenarios: list[Scenario]) -> Lake:
    """A lake that has merged all scenarios in all batchings."""
    own = Lake(lake.spark, own_home(lake.settings, home))
    create_tables(own, declared)
    batches: list[list[Message]] = [[] for _ in range(max(len(scenario.events) for scenario in scenarios))]
    for number, scenario in enumerate(scenarios):
        for how, batching in enumerate(BATCHINGS):
            for place, event in enumerate(scenario.events):
                change = sent(declared.name, 10 * number + how, place, event)
                for batch in batches_of(batching, place, len(scenario.events)):
                    batches[batch].append(change)
    for messages in batches:
        merge_batch(own, declared, bronze(own.spark, messages))
    return own


def seconds(row: dict[str, Any], name: str) -> int | None:
    return None if row[name] is None else int(row[name].timestamp())


def values(row: dict[str, Any], names: tuple[str, ...]) -> Version:
    return (GONE,) if row.get("deleted_at") else tuple(row[name] for name in names)


@pytest.fixture(scope="module")
def held(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, list[Version]]]:
    """By table and key: its latest state, its versions that were ever valid, and the periods that SQL makes of them."""
    found: dict[str, dict[int, list[Version]]] = {}
    for declared, scenarios in ((WHOLE, SCENARIOS), (PARTIAL, PARTIAL_SCENARIOS)):
        own = merged(lake, tmp_path_factory.mktemp(declared.name), declared, scenarios)
        names = ("city", "rank", "address")[: 2 if declared is WHOLE else 3]
        found[declared.name] = {row["id"]: [values(row, names)] for row in read(own.settings, declared.table.name)}
        rows = [row for row in read(own.settings, declared.history.name) if row["valid_from"] != row["valid_until"]]
        found[declared.history.name] = versions(rows, names)
        own.table(declared.history.name).read().createOrReplaceTempView("stores_history")
        [sql] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
        periods = own.spark.sql(sql.replace("silver.stores_history", "stores_history")).collect()
        found[f"periods of {declared.name}"] = versions([row.asDict() for row in periods], ("city", "rank"))
    return found


def versions(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[int, list[Version]]:
    by_key: dict[int, list[Version]] = {}
    for row in sorted(rows, key=lambda row: row["valid_from"]):
        version = (seconds(row, "valid_from"), seconds(row, "valid_until"), *values(row, names))
        by_key.setdefault(row["id"], []).append(version)
    return by_key


@pytest.mark.parametrize(
    ("table", "number", "scenario"),
    [
        *(pytest.param("whole", *each, id=each[1].name) for each in enumerate(SCENARIOS)),
        *(pytest.param("partial", *each, id=each[1].name) for each in enumerate(PARTIAL_SCENARIOS)),
    ],
)
def test_each_batching_makes_the_same_versions_and_the_last_is_the_state(
    held: dict[str, dict[int, list[Version]]], table: str, number: int, scenario: Scenario
) -> None:
    for how, _ in enumerate(BATCHINGS):
        key = 10 * number + how
        assert held[f"silver.{table}_history"][key] == scenario.versions
        assert held[table][key] == [scenario.versions[-1][2:]]


@pytest.mark.parametrize(
    ("number", "scenario"), [pytest.param(*each, id=each[1].name) for each in enumerate(SCENARIOS)]
)
def test_the_periods_in_which_some_columns_are_the_same_are_those_of_auto_cdc(
    held: dict[str, dict[int, list[Version]]], number: int, scenario: Scenario
) -> None:
    wanted = scenario.versions if scenario.periods is None else scenario.periods
    for how, _ in enumerate(BATCHINGS):
        assert held["periods of whole"].get(10 * number + how, []) == wanted
