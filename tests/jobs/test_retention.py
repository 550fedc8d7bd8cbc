"""How much state is kept, by the logs of tables."""

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.jobs import retention
from pulsar_lakehouse.jobs.retention import states
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import dataset_of
from tests.lake import own_home
from tests.messages import at


def test_how_much_state_is_kept(seen: Settings) -> None:
    found = {each.purpose: each for each in states(seen)}
    assert {purpose: (each.rows, each.kept) for purpose, each in found.items()} == {
        "versions of items": (2, "forever"),
        "deleted items": (0, "90 d"),
        "versions of users": (4, "forever"),
        "deleted users": (0, "90 d"),
        "orders, to find duplicates": (2, "7 d"),
        "waiting orders": (1, "30 d"),
        "checkpoints": (3, "100 batches"),
    }
    versions = found["versions of users"]
    assert (versions.oldest, versions.newest) == (at(0), at(20))
    assert all((each.size > 0) == (each.rows > 0) for each in found.values())


def test_no_row_is_read_if_the_logs_have_the_bounds(seen: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def dataset(table: DeltaTable, files: pa.Table, **options: Any) -> object:
        read.extend(files["path"].to_pylist())
        return dataset_of(table, files, **options)

    monkeypatch.setattr(retention, "dataset_of", dataset)
    assert (len(states(seen)), read) == (7, [])


def test_of_a_wide_table_the_rows_are_read_that_the_log_does_not_describe(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    path = project.table_path(ORDERS.waiting.name)
    wide = {f"column{number}": [0, 0] for number in range(32)}  # only so many first columns have bounds
    write_deltalake(path, pa.table({**wide, "waiting_since": [at(3), at(4)]}))
    DeltaTable(path).alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "33"})
    write_deltalake(path, pa.table({**wide, "waiting_since": [at(2), None]}), mode="append")
    [found] = states(project)
    assert (found.purpose, found.rows, found.oldest, found.newest) == ("waiting orders", 3, at(2), at(4))


def test_facts_of_the_last_days_find_duplicates_and_those_of_the_future_too(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    days = [date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 9), date(9000, 1, 1)]
    times = [datetime(day.year, day.month, day.day, 12, tzinfo=UTC) for day in days]
    rows = pa.table({"created_at": times, "order_date": days})
    write_deltalake(project.table_path(ORDERS.gold_table), rows, partition_by=["order_date"])
    [found] = states(project)
    assert (found.rows, found.oldest, found.newest) == (3, times[1], times[3])


def test_rows_that_can_be_partners_of_facts_are_state(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept forever, or until they say so themselves."""
    own, near = (
        own_home(settings, tmp_path),
        Match(entity=ITEMS, on="item_id", by="id", time="created_at", within="1 day"),
    )
    rows = pa.table({"created_at": [at(1), at(2)], "deleted_at": pa.array([None, None], pa.timestamp("us", "UTC"))})
    write_deltalake(own.table_path(ITEMS.table.name), rows)
    for entity, kept in ((ITEMS, "forever"), (replace(ITEMS, deleted_at="createdAt"), "deleted_at + 90 d")):
        facts = replace(ORDERS, lookups=(), matches=(replace(near, entity=entity),))
        pipeline = Pipeline(entities=(entity,), enrichments=(facts,), sql_tables=())
        monkeypatch.setattr(retention, "pipeline_of", lambda _, pipeline=pipeline: pipeline)
        _, found = states(own)
        assert (found.purpose, found.rows, found.oldest, found.kept) == ("items, to match orders", 2, at(1), kept)
