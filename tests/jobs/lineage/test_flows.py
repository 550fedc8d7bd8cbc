"""What each step reads and writes, and where columns come from."""

from dataclasses import replace
from pathlib import Path

import pytest

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.sql.declaration import read_declaration
from pulsar_lakehouse.jobs.lineage.flows import enriched, flows
from pulsar_lakehouse.jobs.lineage.origins import Column, Origin, origin, origins_in_select
from pulsar_lakehouse.pipeline.loading import load
from tests.pipeline.projects import visits_project

NAMES = {"gold.enriched_orders": ("price", "created_at", "item.category"), "silver.users": ("id", "firstName")}


def made(*columns: Column, sql: str = "", is_aggregate: bool = False) -> Origin:
    return Origin(columns=columns, sql=sql, is_aggregate=is_aggregate)


def test_each_step_reads_what_another_has_written(tmp_path: Path) -> None:
    found = flows(load(visits_project(tmp_path, "-- refresh", "-- publish: topic t, postgres p\n-- refresh")).pipeline)
    assert [(flow.step, flow.reads, flow.writes) for flow in found] == [
        ("land visitors", ("topic visitors",), ("bronze.visitors",)),
        ("land visits", ("topic visits",), ("bronze.visits",)),
        (
            "merge visitors",
            ("bronze.visitors",),
            ("silver.visitors", "silver.visitors_history", "quarantine.malformed"),
        ),
        (
            "enrich visits",
            ("bronze.visits", "silver.visitors"),
            (
                "gold.enriched_visits",
                "quarantine.waiting_visits",
                "quarantine.duplicate_visits",
                "quarantine.discarded_visits",
                "quarantine.malformed",
            ),
        ),
        ("refresh gold.counts", ("gold.enriched_visits",), ("gold.counts",)),
        ("publish t", ("gold.counts",), ("topic t",)),
        ("publish postgres p", ("gold.counts",), ("postgres p",)),
    ]


def test_a_match_is_made_from_the_latest_rows_of_its_entity() -> None:
    near = Match(entity=USERS, on="user_id", by="id", time="created_at", within="1 day", each="all", name="near")
    flow = enriched(replace(ORDERS, matches=(near,), lookups=()))
    assert flow.reads == ("bronze.orders", "silver.users")
    assert flow.columns["gold.enriched_orders"]["near.first_name"] == made(("silver.users", "first_name"))


def test_columns_come_from_the_columns_that_their_sql_names(tmp_path: Path) -> None:
    columns = {
        name: made for flow in flows(load(visits_project(tmp_path)).pipeline) for name, made in flow.columns.items()
    }
    assert columns["bronze.visitors"] == {
        "payload.id": made(("topic visitors", "id")),
        "payload.city": made(("topic visitors", "city")),
    }
    assert columns["silver.visitors"] == {
        "id": made(("bronze.visitors", "payload.id")),
        "city": made(("bronze.visitors", "payload.city"), sql="upper(city)"),
        "deleted_at": made(sql="CAST(NULL AS TIMESTAMP)"),
    }
    at = ("bronze.visits", "payload.at")
    place = [("bronze.visits", name) for name in ("partition", "ledger_id", "entry_id", "batch_index")]
    assert columns["gold.enriched_visits"] == {
        "id": made(("bronze.visits", "payload.id")),
        "visitor_id": made(("bronze.visits", "payload.visitorId")),
        "visited_at": made(at, sql="timestamp_millis(at)"),
        "position": made(*place),
        "visit_date": made(at, sql="to_date(visited_at)"),
        "visitor.id": made(("silver.visitors", "id")),
        "visitor.city": made(("silver.visitors", "city")),
        "visitor.deleted_at": made(("silver.visitors", "deleted_at")),
    }
    assert columns["gold.counts"] == {
        "city": made(("gold.enriched_visits", "visitor.city")),
        "visits": made(sql="COUNT(*)", is_aggregate=True),
    }


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("FIRSTNAME", ["payload.firstName"]),
        ("message.event_time", ["event_time"]),
        ("message.position.entry_id", ["partition", "ledger_id", "entry_id", "batch_index"]),
        ("if(message.is_tombstone, NULL, id)", ["payload", "payload.id"]),
        ("current_date()", []),
        ("not (SQL", []),
    ],
)
def test_sql_of_a_declared_column(sql: str, columns: list[str]) -> None:
    found = origin(sql, USERS.topic)
    assert [name for _, name in found.columns] == columns
    assert found.sql == ("" if sql in ("FIRSTNAME", "message.event_time") else sql)


@pytest.mark.parametrize(
    ("select", "origins"),
    [
        (
            "SELECT item.category FROM gold.enriched_orders",
            {"category": made(("gold.enriched_orders", "item.category"))},
        ),
        (
            "WITH o AS (SELECT price AS p FROM gold.enriched_orders) SELECT max(p * 2) AS most FROM o",
            {"most": made(("gold.enriched_orders", "price"), sql="MAX(o.p * 2)", is_aggregate=True)},
        ),
        (
            "WITH o AS (SELECT item FROM gold.enriched_orders) SELECT item.price AS p FROM o",
            {"p": made(("gold.enriched_orders", "item"), sql="o.item.price")},
        ),
        (
            "SELECT o.price, u.FirstName AS name FROM gold.enriched_orders o JOIN silver.users u ON u.id = o.user_id",
            {"price": made(("gold.enriched_orders", "price")), "name": made(("silver.users", "firstName"))},
        ),
        (
            "SELECT window(created_at, :gap).start AS since FROM gold.enriched_orders",
            {
                "since": made(
                    ("gold.enriched_orders", "created_at"), sql="WINDOW(enriched_orders.created_at, :gap).start"
                )
            },
        ),
        (
            "SELECT price FROM gold.enriched_orders UNION ALL SELECT id FROM silver.users",
            {"price": made(("gold.enriched_orders", "price"), ("silver.users", "id"), sql="enriched_orders.price")},
        ),
        (
            "SELECT u.id, o.most FROM silver.users u, "
            "LATERAL (SELECT max(price) AS most FROM gold.enriched_orders WHERE user_id = u.id) o",
            {},
        ),
    ],
)
def test_columns_of_a_select(tmp_path: Path, select: str, origins: dict[str, Origin]) -> None:
    file = tmp_path / "t.sql"
    markers = "-- parameter gap: '1 hour'\n" if ":gap" in select else ""
    file.write_text(f"-- T.\n-- keys: k\n-- refresh: full\n{markers}{select}\n")
    assert origins_in_select(read_declaration(file), NAMES) == origins


def test_a_lookup_as_of_a_time_reads_the_history() -> None:
    flow = enriched(ORDERS)
    assert flow.reads == ("bronze.orders", "silver.users", "silver.items_history")
    assert flow.columns["gold.enriched_orders"]["item.price"] == made(("silver.items_history", "price"))
