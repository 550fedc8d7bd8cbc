import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as F

from pulsar_lakehouse.access import ITSELF
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.inspection.query import Found, query, query_fenced
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import existing_tables
from tests.lake import own_home


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        (
            "SELECT * FROM silver.users",
            "Table with name users does not exist! {warehouse} has no tables yet: "
            "`lakehouse run` creates the declared ones, `lakehouse refresh` those declared in SQL",
        ),
        ("SELECT nothing(1)", "Scalar Function with name nothing does not exist!"),
    ],
)
def test_where_nothing_has_run_yet_that_is_said_of_tables(tmp_path: Path, statement: str, error: str) -> None:
    told = re.escape(error.format(warehouse=tmp_path / "warehouse"))
    with pytest.raises(LakehouseError, match=f"^Catalog Error: {told}$"):
        query(load_settings(home=tmp_path), statement)


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("gold.enriched_order", "There is gold.enriched_orders"),
        (
            "gold.elsewhere",
            "{warehouse} has other tables: `lakehouse run` creates the declared ones, "
            "`lakehouse refresh` those declared in SQL; `lakehouse status` lists those that are there",
        ),
    ],
)
def test_a_table_that_is_not_there(settings: Settings, tmp_path: Path, named: str, hint: str) -> None:
    project = own_home(settings, tmp_path)
    DeltaTable.create(project.table_path("gold.enriched_orders"), pa.schema({"id": pa.int64()}))
    with pytest.raises(
        LakehouseError, match=f"does not exist! {re.escape(hint.format(warehouse=project.warehouse_root))}$"
    ):
        query(project, f"SELECT * FROM {named}")


def test_what_moves_between_two_tables_while_they_are_opened_is_in_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, row = load_settings(home=tmp_path), pa.table({"id": [1]})
    gold, waiting = (project.table_path(name) for name in ("gold.orders", "quarantine.waiting"))
    write_deltalake(gold, row.slice(1))
    write_deltalake(waiting, row)

    def opened(*given: Any) -> Iterator[tuple[str, DeltaTable]]:
        for name, table in existing_tables(*given):
            yield name, table
            if name == "gold.orders":
                write_deltalake(gold, row, mode="append")
                DeltaTable(waiting).delete()

    monkeypatch.setattr("pulsar_lakehouse.inspection.query.existing_tables", opened)
    both = "SELECT 'gold', id FROM gold.orders UNION ALL SELECT 'waiting', id FROM quarantine.waiting"
    assert query(project, both).fetchall() == [("gold", 1)]


@pytest.mark.parametrize(
    "condition", ["done = true", "done", "NOT done IS NULL", "done AND day = '2026-01-01'", "id = 7"]
)
def test_a_condition_finds_rows_of_files_without_bounds(lake: Lake, tmp_path: Path, condition: str) -> None:
    project, notes = own_home(lake.settings, tmp_path), "gold.notes"
    Lake(lake.spark, project).create(
        Table(name=notes, columns="id BIGINT, done BOOLEAN, day DATE", partition_by=("day",))
    )
    for id in (7, None):
        rows = lake.spark.createDataFrame(
            [(id, id and True, id and date(2026, 1, 1))], "id BIGINT, done BOOLEAN, day DATE"
        )
        rows.write.format("delta").mode("append").save(project.table_path(notes))
    assert query(project, f"SELECT id FROM {notes} WHERE {condition}").fetchall() == [(7,)]


def test_partitions_can_have_any_values(lake: Lake, tmp_path: Path) -> None:
    project, notes, columns = own_home(lake.settings, tmp_path), "gold.notes", "id BIGINT, name STRING, day DATE"
    Lake(lake.spark, project).create(Table(name=notes, columns=columns, partition_by=("name", "day")))
    for name, day in (("50 %/ü=%20", "DATE '2026-01-01'"), (None, "make_date(10183, 9, 21)"), ("", "NULL")):
        rows = lake.spark.createDataFrame([(7, name)], "id BIGINT, name STRING").withColumn(
            "day", F.expr(day).cast("date")
        )
        rows.write.format("delta").mode("append").save(project.table_path(notes))
    found = query(project, f"SELECT name, CAST(day AS VARCHAR) AS day FROM {notes} WHERE id = 7").fetchall()
    assert sorted(found, key=str) == [("50 %/ü=%20", "2026-01-01"), (None, "10183-09-21"), (None, None)]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT id FROM gold.notes ORDER BY id DESC", [(3,), (2,), (1,)]),
        ("FROM gold.notes LIMIT 1", [(1,)]),
        ("WITH more AS (FROM gold.notes) SELECT count(*) FROM more", [(3,)]),
        ('SELECT max(id) FROM GOLD."Notes" -- the last; of all', [(3,)]),
        ("DESCRIBE gold.notes", [("id", "BIGINT", "YES", None, None, None)]),
    ],
)
def test_a_fenced_query_reads_tables(notes: Settings, statement: str, found: list[object]) -> None:
    assert query_fenced(notes, statement, ITSELF).rows == found


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELECT * FROM read_text('{secret}')", "file system operations are disabled"),
        ("SELECT * FROM read_csv('{secret}')", "file system operations are disabled"),
        ("SELECT * FROM '{secret}'", "file system operations are disabled"),
        ("SELECT * FROM glob('/*')", "file system operations are disabled"),
        ("SELECT * FROM 's3://bucket/file.parquet'", "file system operations are disabled"),
        ("SELECT * FROM read_parquet('https://example.org/a.parquet')", "disabled"),
        ("SELECT * FROM query('COPY (SELECT 1) TO ''{secret}''')", "Expected a single SELECT"),
        ("SELECT * FROM settings", "does not exist"),
        ("SELECT * FROM connection", "does not exist"),
        ("COPY (SELECT 1) TO '{secret}'", "only one statement is run"),
        ("INSTALL httpfs", "only one statement is run"),
        ("LOAD httpfs", "only one statement is run"),
        ("ATTACH '{secret}.db'", "only one statement is run"),
        ("SET enable_external_access = true", "only one statement is run"),
        ("PRAGMA database_list", "only one statement is run"),
        ("CREATE TABLE gold.more AS SELECT 1", "only one statement is run"),
        ("DROP VIEW gold.notes", "only one statement is run"),
        ("SELECT 1; SELECT 2", "only one statement is run"),
        ("SELECT 1; COPY (SELECT 1) TO '{secret}'", "only one statement is run"),
        ("", "only one statement is run"),
        ("SELECT", "Parser Error"),
        ("SELECT $a", "Values were not provided"),
    ],
)
def test_a_fenced_query_reads_nothing_else(notes: Settings, tmp_path: Path, statement: str, why: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b")
    with pytest.raises(LakehouseError, match=why):
        query_fenced(notes, statement.format(secret=secret), ITSELF)
    assert (secret.read_text(), {each.name for each in tmp_path.iterdir()}) == ("a,b", {"secret.csv", "warehouse"})


def test_a_fenced_query_returns_few_rows(notes: Settings) -> None:
    assert [query_fenced(notes, "SELECT id FROM gold.notes", ITSELF, most=most) for most in (2, 3)] == [
        Found(columns=["id"], rows=[(1,), (2,)], is_cut=True),
        Found(columns=["id"], rows=[(1,), (2,), (3,)], is_cut=False),
    ]


def test_a_fenced_query_has_little_time(notes: Settings) -> None:
    endless = "SELECT count(*) FROM range(1000000000) a(x), range(1000000) b(y) WHERE a.x * b.y % 7 = 3"
    with pytest.raises(LakehouseError, match=r"^it was stopped after 0\.3 s: read less, or use `lakehouse sql`$"):
        query_fenced(notes, endless, ITSELF, seconds=0.3)


def test_other_tables_are_not_opened(notes: Settings) -> None:
    log = Path(notes.table_path("gold.torn")) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{")
    assert query(notes, "SELECT count(*) FROM gold.notes").fetchall() == [(3,)]
    with pytest.raises(LakehouseError, match=r"^gold\.torn: "):
        query(notes, "SELECT count(*) FROM gold.torn")


@pytest.fixture
def notes(settings: Settings, tmp_path: Path) -> Settings:
    project = own_home(settings, tmp_path)
    write_deltalake(project.table_path("gold.notes"), pa.table({"id": [1, 2, 3]}))
    return project
