from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import awaited_keys
from pulsar_lakehouse.gold.enrichment.survivors import mapping_of, read_merges
from pulsar_lakehouse.jobs.state_of_key import state_of_facts, state_of_key
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home
from tests.messages import at
from tests.shop import SHOP


def kept(project: Settings, key: str) -> dict[str, list[tuple[Any, ...]]]:
    return {part.title: part.rows for part in state_of_key(project, SHOP, USERS, key)}


def test_the_versions_of_a_key_and_the_facts_that_have_it(seen: Settings) -> None:
    found = kept(seen, "2")
    assert dict(found.pop("Latest state of users 2"))["first_name"] == "Ada"
    assert found == {
        "Merged into": [],
        "Merged from": [],
        "Its versions": [
            (at(5), at(20), at(5), ""),
            (at(20), None, None, "first_name Ada, created_at 2026-01-01 00:00:00"),
        ],
        "orders that wait for it, at most 20": [],
        "orders in gold that have it": [("user", 1, at(10), at(10))],
    }


@pytest.mark.parametrize(("key", "title", "other"), [("4", "Merged into", 1), ("1", "Merged from", 4)])
def test_merges(seen: Settings, key: str, title: str, other: int) -> None:
    assert kept(seen, key)[title] == [(other,)]


def test_facts_that_wait_for_a_key_without_state(seen: Settings) -> None:
    found = kept(seen, "8")
    assert found["Latest state of users 8"] == []
    [(invoice, line, reason, attempts, _)] = found["orders that wait for it, at most 20"]
    assert (invoice, line, reason, attempts) == (1, 5, "user missing", 1)


@pytest.fixture(scope="module")
def merges(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, dict[int, int]]:
    """Users that were merged or not, and which merges enrichment reads of them, as an oracle for what is shown."""
    project = Lake(lake.spark, own_home(lake.settings, tmp_path_factory.mktemp("merges")))
    project.create(USERS.table)
    rows = [(1, None, None), (2, at(0), 1), (3, None, 1), (4, at(0), None), (5, at(0), 2)]
    users = [dict(zip(("id", "merged_at", "parent_user_id"), row, strict=True)) for row in rows]
    append_values(project.settings, USERS.table.name, users)
    [lookup] = [lookup for lookup in ORDERS.lookups if lookup.merged_into]
    return project.settings, dict(mapping_of(read_merges(project.table(USERS.table.name).read(), lookup=lookup)))


@pytest.mark.parametrize("key", [1, 2, 3, 4, 5])
def test_merges_are_those_that_enrichment_follows(merges: tuple[Settings, dict[int, int]], key: int) -> None:
    project, followed = merges
    found = kept(project, str(key))
    assert found["Merged into"] == [(followed[key],) for _ in [key] if key in followed]
    assert found["Merged from"] == [(merged,) for merged, into in sorted(followed.items()) if into == key]


MISSING = [
    {"entity": "users", "key": "1"},
    {"entity": "users", "key": "2", "merged": ["1", "3"]},
    {"entity": "items", "key": "2", "via": [{"entity": "users", "key": "3"}]},
    {"entity": "items", "key": "3", "merged": ["1"], "via": [{"entity": "users", "key": "2"}]},
    {"entity": "items", "key": "1"},
]


@pytest.fixture(scope="module")
def waiting(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Orders that wait: one for each of these states, and one for all of them."""
    project = Lake(lake.spark, own_home(lake.settings, tmp_path_factory.mktemp("waiting")))
    project.create(ORDERS.waiting)
    rows = [{"line_item_id": line, "missing": [state]} for line, state in enumerate(MISSING)]
    append_values(project.settings, ORDERS.waiting.name, [*rows, {"line_item_id": len(MISSING), "missing": MISSING}])
    return project


@pytest.mark.parametrize("key", ["1", "2", "3", "4"])
def test_facts_wait_for_the_keys_that_enrichment_awaits(waiting: Lake, key: str) -> None:
    user = F.struct(F.lit("users").alias("entity"), F.lit(key).alias("key"))
    rows = waiting.table(ORDERS.waiting.name).read()
    awaiting = rows.where(F.exists("missing", lambda state: F.array_contains(awaited_keys(state), user))).collect()
    shown = kept(waiting.settings, key)["orders that wait for it, at most 20"]
    assert sorted(line for _, line, *_ in shown) == sorted(row.line_item_id for row in awaiting)
    assert bool(shown) == (key != "4")


def position(entry: int) -> dict[str, int]:
    return {"partition": 0, "ledger_id": 7, "entry_id": entry, "batch_index": -1}


def line(number: int, entry: int, **more: object) -> dict[str, object]:
    """A line of an invoice, at an entry."""
    row = {"invoice_id": 8, "line_item_id": number, "created_at": at(10), "order_date": at(10).date()}
    return {**row, "position": position(entry), **more}


@pytest.fixture
def invoice(settings: Settings, tmp_path: Path) -> Settings:
    """A project with an invoice, the lines of which are in different tables."""
    project = own_home(settings, tmp_path)
    waits = {"reason": "user missing", "attempts": 2, "waiting_since": at(600)}
    rows = {
        ORDERS.gold_table: line(1, 1),
        ORDERS.waiting.name: line(2, 2, **waits),
        ORDERS.discarded.name: line(3, 3, **waits),
        ORDERS.duplicates.name: line(1, 4, duplicate_of=position(1)),
    }
    for name, row in rows.items():
        write_deltalake(project.table_path(name), pa.Table.from_pylist([row]))
    return project


def test_where_facts_are_and_on_which_days_a_repeat_is_a_duplicate(invoice: Settings) -> None:
    found = state_of_facts(invoice, ORDERS, "8")
    assert found.title == "orders 8, at most 20"
    shown = ("line_item_id", "place", "message", "more", "days of duplicates")
    waits, days = "user missing, since 2026-01-01 10:00, attempts: 2", "2025-12-25 to 2026-01-08"
    assert [tuple(row[found.columns.index(name)] for name in shown) for row in found.rows] == [
        (1, "duplicate", "0/7/4/-1", "repeats 0/7/1/-1", ""),
        (1, "gold", "0/7/1/-1", "", days),
        (2, "waiting", "0/7/2/-1", waits, days),
        (3, "discarded", "0/7/3/-1", waits, days),
    ]


@pytest.mark.parametrize(("key", "lines"), [("[8]", [1, 1, 2, 3]), ("[8, 2]", [2]), ("[8,9]", []), ("9", [])])
def test_facts_by_the_first_key_columns(invoice: Settings, key: str, lines: list[int]) -> None:
    assert [row[1] for row in state_of_facts(invoice, ORDERS, key).rows] == lines


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("one", "one: invoice_id is of type int64, and this is no value of it"),
        ("[1", "[1: a key of orders is invoice_id, line_item_id: one value, or a JSON array of them"),
        ("[1,2,3]", "[1,2,3]: a key of orders is invoice_id, line_item_id: one value, or a JSON array of them"),
    ],
)
def test_what_can_not_be_a_key_of_facts(invoice: Settings, key: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        state_of_facts(invoice, ORDERS, key)
    assert str(error.value) == said


def test_facts_without_tables(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(LakehouseError) as error:
        state_of_facts(own_home(settings, tmp_path), ORDERS, "1")
    assert str(error.value) == "orders: there is no table of them yet: `lakehouse run` makes them"


def test_a_truncation_of_the_table_is_told(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    topic = Topic("cities", "id BIGINT NOT NULL, name STRING", envelope=Debezium(), changelog=True)
    cities = Entity(topic=topic, key="id", columns="id, name")
    Lake(lake.spark, project).create(cities.history)
    rows: list[dict[str, Any]] = [
        {"id": None, "valid_from": at(9)},
        {"id": 1, "valid_from": at(5), "valid_until": at(9)},
    ]
    append_values(project, cities.history.name, rows)
    pipeline = Pipeline(entities=(cities,), enrichments=(), sql_tables=())
    found = {part.title: part.rows for part in state_of_key(project, pipeline, cities, "1")}
    assert found["Truncations of cities, which delete all older keys"] == [(at(9),)]
