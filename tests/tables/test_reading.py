"""Rows of a few keys are found without Spark, if they are the ones that Spark would find."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pulsar_lakehouse.limits import READ_BYTES, SMALL_TABLE_BYTES
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.frames import frame_of, of_keys
from pulsar_lakehouse.tables import reading
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake, Pinned
from pulsar_lakehouse.tables.reading import (
    LeftToSparkError,
    find_changed,
    find_rows,
    rows_if_small,
    rows_of_keys,
    rows_since,
)
from tests.lake import own_home

NOTES = Table(
    name="gold.notes",
    columns="""
        id BIGINT, short TINYINT, name STRING, rate DOUBLE, at TIMESTAMP, day DATE, done BOOLEAN,
        place STRUCT<entry: BIGINT, price: DECIMAL(10, 2), at: TIMESTAMP>, names MAP<STRING, STRING>
    """,
    partition_by=("day",),
)
VALUES = [
    "id",
    "CAST(id AS TINYINT) AS short",
    "IF(id % 10 = 0, NULL, 'name ' || id) AS name",
    "IF(id < 9, 0.0D, -0.0D) AS rate",
    "timestamp_micros(id) AS at",
    "date'2026-01-01' + CAST(id % 3 AS INT) AS day",
    "id % 2 = 0 AS done",
    "named_struct('entry', id, 'price', CAST(id + 0.5 AS DECIMAL(10, 2)), 'at', timestamp_micros(id)) AS place",
    "map('a', 'b') AS names",
]


@pytest.fixture
def project(settings: Settings, tmp_path: Path) -> Settings:
    return own_home(settings, tmp_path)


def filled(lake: Lake) -> Pinned:
    """The table with 100 rows, in two commits of three files."""
    lake.create(NOTES)
    for ids in (lake.spark.range(50), lake.spark.range(50, 100)):
        append(ids, lake.settings)
    return lake.table(NOTES.name).pin()


def append(ids: DataFrame, project: Settings) -> None:
    ids.selectExpr(*VALUES).to(NOTES.schema).write.format("delta").mode("append").save(project.table_path(NOTES.name))


def found_by_spark(table: Pinned, keys: pa.Table) -> list[Row]:
    return of_keys(table.rows, table.rows.sparkSession.createDataFrame(keys)).orderBy("id").collect()


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        ({"id": [7, 70, 700]}, [7, 70]),
        ({"id": [7, 7]}, [7]),
        ({"id": pa.array([], pa.int64())}, []),
        ({"id": pa.array([None, 7], pa.int64())}, [7]),
        ({"short": pa.array([7, 99], pa.int8())}, [7, 99]),
        ({"name": ["name 7", "NAME 8", "it's none"]}, [7]),
        ({"name": [None, "name 7"]}, [0, 7, 10, 20, 30, 40, 50, 60, 70, 80, 90]),
        ({"id": [7, 10, 20], "name": ["name 7", None, "name 20"]}, [7, 10]),
        ({"id": [7, 8], "name": ["name 8", "name 7"]}, []),
        ({"day": [date(2026, 1, 2)], "done": [True]}, [*range(4, 100, 6)]),
    ],
)
def test_keys_are_looked_for(spark: SparkSession, project: Settings, keys: dict[str, Any], ids: list[int]) -> None:
    table = filled(Lake(spark, project))
    for are_rare in (False, True):
        found = find_rows(table, pa.table(keys), columns=NOTES.schema.names, are_rare=are_rare)
        assert found is not None
        assert sorted(found["id"].to_pylist()) == ids
    rows = rows_of_keys(table, pa.table(keys))
    assert rows.schema == table.rows.schema
    assert rows.orderBy("id").collect() == found_by_spark(table, pa.table(keys))


def test_only_files_that_can_have_a_key_are_read(spark: SparkSession, project: Settings) -> None:
    table = filled(Lake(spark, project))
    for file in Path(project.table_path(NOTES.name)).rglob("*.parquet"):
        has_key = f"{date(2026, 1, 2)}" in str(file) and any(
            row.id == 7 for row in spark.read.parquet(str(file)).collect()
        )
        if not has_key:
            file.unlink()
    found = find_rows(
        table,
        pa.table({"id": [7]}),
        columns=["id", "place"],
        within={"day": (date(2026, 1, 2), date(2026, 1, 2))},
    )
    assert found is not None
    assert found["place"].to_pylist()[0]["entry"] == 7


@pytest.mark.parametrize("key", ["at", "rate"])
def test_changes_of_such_keys_are_left_to_spark(spark: SparkSession, project: Settings, key: str) -> None:
    table = filled(Lake(spark, project))
    with pytest.raises(LeftToSparkError):
        find_changed(table, [key], since=table.version - 1)


def test_a_version_is_read_as_it_was(spark: SparkSession, project: Settings) -> None:
    table = filled(Lake(spark, project))
    append(spark.range(7, 8), project)
    assert rows_of_keys(table, pa.table({"id": [7]})).count() == 1
    assert rows_of_keys(Lake(spark, project).table(NOTES.name).pin(), pa.table({"id": [7]})).count() == 2


@pytest.mark.parametrize(
    "keys",
    [
        {"rate": [0.0]},
        {"at": pa.array([7], pa.timestamp("us", "UTC"))},
        {"place": [{"entry": 7}]},
        {"id": ["7"]},
        {"short": [700]},
    ],
)
def test_types_with_an_equality_of_their_own_are_left_to_spark(
    spark: SparkSession, project: Settings, keys: dict[str, Any]
) -> None:
    with pytest.raises(LeftToSparkError):
        find_rows(filled(Lake(spark, project)), pa.table(keys), columns=[*keys])


@pytest.mark.parametrize("limit", ["READ_BYTES", "FOUND_BYTES"])
def test_much_is_left_to_spark(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(reading, limit, 1)
    table, keys = filled(Lake(spark, project)), pa.table({"id": [7, 70]})
    with pytest.raises(LeftToSparkError):
        find_rows(table, keys, columns=["id"])
    assert rows_of_keys(table, keys).orderBy("id").collect() == found_by_spark(table, keys)


@pytest.mark.parametrize("limit", [READ_BYTES, 1])
@pytest.mark.parametrize(
    ("day", "time", "ids"),
    [
        ("2026-01-02", "1970-01-01 00:00:00.000095", [97, 95, 98]),
        ("1970-01-01", "1970-01-01 00:00:00.000098", [98, 99]),
        ("2026-01-04", "1970-01-01 00:00:00", []),
        ("+10000-01-01", "+10000-01-01 00:00:00", []),
        (None, None, []),
    ],
)
def test_rows_from_a_time_on(
    spark: SparkSession,
    project: Settings,
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    day: str | None,
    time: str | None,
    ids: list[int],
) -> None:
    monkeypatch.setattr(reading, "READ_BYTES", limit)
    found = rows_since(filled(Lake(spark, project)), day=("day", day), time=("at", time), columns=["id", "place"])
    assert found.columns == ["id", "place"]
    assert sorted(row.id for row in found.collect()) == sorted(ids)


@pytest.mark.parametrize("limit", [SMALL_TABLE_BYTES, 1])
def test_all_rows_of_a_small_table(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(reading, "SMALL_TABLE_BYTES", limit)
    table = filled(Lake(spark, project))
    for columns in (None, ["place", "id"]):
        rows = rows_if_small(table, columns=columns)
        same = table.rows.select(*(columns or table.schema.names))
        assert rows.orderBy("id").collect() == same.orderBy("id").collect()
        assert rows.isLocal() == (limit != 1)


def test_what_can_not_be_read_is_left_to_spark(spark: SparkSession, project: Settings) -> None:
    table = filled(Lake(spark, project))
    for file in Path(project.table_path(NOTES.name)).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(LeftToSparkError):
        find_rows(table, pa.table({"id": [7]}), columns=["id"])


def test_a_table_without_files_has_no_rows(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).create(NOTES)
    table, keys = Lake(spark, project).table(NOTES.name).pin(), pa.table({"id": [7]})
    found = find_rows(table, keys, columns=["id"], within={"day": (date(2026, 1, 1), None)})
    assert found is not None
    assert not found.num_rows
    assert rows_if_small(table).isEmpty()


def test_a_year_that_python_has_not_is_left_to_spark(spark: SparkSession, project: Settings) -> None:
    filled(Lake(spark, project))
    far = [*VALUES[:5], "make_date(10183, 9, 21) AS day", *VALUES[6:]]
    spark.range(7, 8).selectExpr(*far).write.format("delta").mode("append").save(project.table_path(NOTES.name))
    rows = rows_of_keys(Lake(spark, project).table(NOTES.name).pin(), pa.table({"id": [7]}), columns=["id", "short"])
    assert [tuple(row) for row in rows.collect()] == [(7, 7), (7, 7)]


def test_a_table_whose_columns_have_other_names_in_files_is_left_to_spark(
    spark: SparkSession, project: Settings
) -> None:
    filled(Lake(spark, project))
    path = f"delta.`{project.table_path(NOTES.name)}`"
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    spark.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ({mapped})")
    spark.sql(f"ALTER TABLE {path} RENAME COLUMN short TO small")
    rows = rows_of_keys(Lake(spark, project).table(NOTES.name).pin(), pa.table({"small": pa.array([7], pa.int8())}))
    assert [row.id for row in rows.collect()] == [7]


def test_what_follows_an_empty_chunk_is_in_the_frame(spark: SparkSession) -> None:
    chunks = pa.chunked_array([[1], pa.array([], pa.int64()), [2]])
    assert [row.id for row in frame_of(spark, pa.table({"id": chunks})).collect()] == [1, 2]
