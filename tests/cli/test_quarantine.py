"""`lakehouse quarantine` on a table of waiting orders."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
import typer

from pulsar_lakehouse.cli import quarantine, report
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home
from tests.shop import ENRICHMENTS

[ORDERS] = ENRICHMENTS


def test_inspect_names_the_order_that_has_waited_longest(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = own_home(lake.settings, tmp_path)
    Lake(lake.spark, project).create(ORDERS.waiting)
    waiting = [
        {
            "invoice_id": 7,
            "line_item_id": line,
            "day": date(2026, 1, 1),
            "missing": [{"entity": "users", "key": user, "reason": "missing"}],
            "attempts": 1,
            "waiting_since": datetime(2026, 1, day, tzinfo=UTC),
        }
        for line, user, day in ((1, "5", 3), (2, "9", 2), (3, "5", 4))
    ]
    append_values(project, ORDERS.waiting.name, waiting)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(project.home))
    shown: list[tuple[object, ...]] = []
    monkeypatch.setattr(report, "rows", lambda columns, rows, **_: shown.extend([columns, *rows]))
    typer.main.get_command(quarantine.app)(["inspect"], standalone_mode=False)
    assert [row[:6] for row in map(tuple, shown)] == [
        ("reason", "entity", "orders", "oldest", "keys", "such as"),
        ("missing", "users", 3, "7 2", 2, "9"),
    ]


def test_inspect_shows_malformed_messages_also_without_facts(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    declarations = tmp_path / "declarations"
    declarations.mkdir()
    declarations.joinpath("stores.py").write_text(
        "from pulsar_lakehouse import Entity, Topic\n"
        'STORES = Entity(topic=Topic("stores", "id BIGINT NOT NULL", changelog=True), key="id", columns="id")\n'
    )
    project = own_home(settings, tmp_path)
    Lake(lake.spark, project).create(MALFORMED)
    rows = [
        {"topic": "stores", "reason": reason, "quarantined_at": datetime(2026, 1, day, tzinfo=UTC)}
        for day, reason in ((1, "not a JSON object"), (2, "id is missing"), (3, "not a JSON object"))
    ]
    append_values(project, MALFORMED.name, rows)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(project.home))
    monkeypatch.setenv("LAKEHOUSE_DECLARATIONS", str(declarations))
    shown: list[tuple[object, ...]] = []
    monkeypatch.setattr(report, "rows", lambda columns, rows, **_: shown.extend([columns, *rows]))
    typer.main.get_command(quarantine.app)(["inspect"], standalone_mode=False)
    assert [row[:3] for row in map(tuple, shown)] == [
        ("topic", "reason", "messages"),
        ("stores", "not a JSON object", 2),
        ("stores", "id is missing", 1),
    ]
