import re
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.delta.query import query
from lakehouse.delta.tables import Table, create_table
from lakehouse.errors import LakehouseError
from lakehouse.settings import Settings, load_settings
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
    "condition", ["done = true", "done", "NOT done IS NULL", "done AND day = '2026-01-01'", "id = 7"]
)
def test_a_condition_finds_rows_of_files_without_bounds(
    spark: SparkSession, settings: Settings, tmp_path: Path, condition: str
) -> None:
    lake, notes = own_home(settings, tmp_path), "gold.notes"
    create_table(spark, lake, Table(name=notes, columns="id BIGINT, done BOOLEAN, day DATE", partition_by=("day",)))
    for id in (7, None):
        rows = spark.createDataFrame([(id, id and True, id and date(2026, 1, 1))], "id BIGINT, done BOOLEAN, day DATE")
        rows.write.format("delta").mode("append").save(lake.table_path(notes))
    assert query(lake, f"SELECT id FROM {notes} WHERE {condition}").fetchall() == [(7,)]
