import re
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
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
