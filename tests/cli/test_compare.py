"""`lakehouse compare` in a project that replicates a table of a real Postgres."""

import json
from dataclasses import replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse.cli.compare import replicas
from pulsar_lakehouse.domains import DOMAINS
from pulsar_lakehouse.pipeline.loading import load
from tests.cli.outcome import Command, Outcome

DECLARATIONS = """
from pulsar_lakehouse import Debezium, Entity, Topic

CUSTOMERS = Entity(
    topic=Topic("customers", "id INT NOT NULL, name STRING", topic="dbserver1.shop.customers", envelope=Debezium()),
    key="id",
    columns="id, name",
)
NOTES = Entity(topic=Topic("notes", "id INT NOT NULL"), key="id", columns="id")
"""
ROWS = pa.schema({"id": pa.int32(), "name": pa.string(), "deleted_at": pa.timestamp("us", "UTC")})


@pytest.fixture
def compare(lakehouse: Command, postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Ada and Bo are customers in Postgres, and in silver."""
    folder = tmp_path / "declarations"
    folder.mkdir()
    (folder / "customers.py").write_text(DECLARATIONS)
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.customers (id integer PRIMARY KEY, name text)")
        connection.execute("INSERT INTO shop.customers VALUES (1, 'Ada'), (2, 'Bo')")
    rows = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bo"}, {"id": 3, "name": "Cy", "deleted_at": 0}]
    write_deltalake(tmp_path / "home" / "warehouse" / "silver" / "customers", pa.Table.from_pylist(rows, ROWS))
    monkeypatch.setenv("LAKEHOUSE_POSTGRES__URL", postgres)
    return lambda *arguments, **environment: lakehouse("compare", *arguments, **environment)


def test_a_replica_is_equal(compare: Command) -> None:
    assert compare() == Outcome(
        0,
        "silver.customers and shop.customers: 2 rows are equal, 0 differ, 0 only here, 0 only there\n"
        "  compared at version 0, by id: id, name\n",
        "Comparing silver.customers with shop.customers\n",
    )


def test_what_differs_is_shown(compare: Command, postgres: str, tmp_path: Path) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute(
            "UPDATE shop.customers SET name = NULL WHERE id = 2; DELETE FROM shop.customers WHERE id = 1"
        )
    done = compare(LAKEHOUSE_RUN__OUTCOME_FILE=str(tmp_path / "outcome"))
    line = "silver.customers and shop.customers: 0 rows are equal, 1 differ, 1 only here, 0 only there"
    assert (done.code, done.line) == (1, f"lakehouse: {line}")
    assert json.loads((tmp_path / "outcome").read_text()) == {"note": line}
    cells = [[cell.strip() for cell in row.split("│")[1:-1]] for row in done.out.splitlines() if "│" in row]
    assert cells == [["name", "1", "2", "Bo", "NULL"], ["only here", "1", "1", "a row", "no row"]]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["silver.users"], 78, "silver.users: not declared; there are silver.customers, silver.notes"),
        (["silver.notes"], 1, "silver.notes is not there yet: run `lakehouse run` first"),
        (
            ["silver.customers", "silver.notes", "--with", "shop.customers"],
            78,
            "--with shop.customers: is for one table, not for silver.customers, silver.notes",
        ),
        (["--wait", "long"], 78, "--wait long: must be a number with ms, s, m or h, such as 2s"),
    ],
)
def test_wrong_arguments(compare: Command, arguments: list[str], code: int, line: str) -> None:
    assert compare(*arguments) == Outcome(code, "", f"lakehouse: {line}\n")


def test_tables_are_compared_with_those_of_the_same_name_or_to_which_they_are_published() -> None:
    shop = load(DOMAINS["shop"] / "declarations").pipeline
    published = tuple(replace(each, postgres="reports.revenue") for each in shop.sql_tables[:1])
    found = replicas(replace(shop, sql_tables=published))
    assert {each.table: (each.keys, each.original) for each in found} == {
        "silver.items": (("id",), "items"),
        "silver.users": (("id",), "users"),
        "gold.enriched_orders": (("invoice_id", "line_item_id"), "enriched_orders"),
        published[0].name: (published[0].keys, "reports.revenue"),
    }


def test_it_needs_to_know_where_postgres_is(compare: Command) -> None:
    done = compare(LAKEHOUSE_POSTGRES__URL="")
    line = "silver.customers is compared with shop.customers in Postgres: set LAKEHOUSE_POSTGRES__URL to its address"
    assert (done.code, done.line) == (78, f"lakehouse: {line}")
