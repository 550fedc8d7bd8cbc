import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.frames import with_columns_of
from pulsar_lakehouse.tables import direct as writes
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home, versions

BOATS = Table(
    name="silver.boats",
    columns="id BIGINT, owner STRUCT<name: STRING, home: STRUCT<city: STRING>>, day DATE",
    partition_by=("day",),
)


@pytest.fixture
def project(lake: Lake, tmp_path: Path) -> Settings:
    """A project with a table of one row."""
    own = own_home(lake.settings, tmp_path)
    Lake(lake.spark, own).create(BOATS)
    row = (
        "1L AS id, named_struct('name', 'Ada', 'home', named_struct('city', 'Rome')) AS owner, DATE '2026-01-01' AS day"
    )
    Lake(lake.spark, own).table(BOATS.name).append(lake.spark.sql(f"SELECT {row}"))
    return own


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(38, 18)", "VARIANT", "MAP<STRING, BINARY>"])
def test_a_table_is_the_same_whoever_makes_it(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """delta-rs makes tables, and Spark those whose types only Spark knows."""
    properties = {"delta.enableChangeDataFeed": "true", "lakehouse.madeFrom": """{"a": "it's $5"}"""}

    def made(name: str) -> tuple[object, ...]:
        table = Table(name=name, columns=f"`a.b` {kind}, day DATE", partition_by=("day",), properties=properties)
        assert Lake(spark, project).create(table)
        assert not Lake(spark, project).create(table)
        assert Lake(spark, project).table(name).is_known_empty
        [detail] = spark.sql(f"DESCRIBE DETAIL delta.`{project.table_path(name)}`").collect()
        return Lake(spark, project).table(name).schema, detail.partitionColumns, detail.properties

    by_either = made("silver.either")
    monkeypatch.setattr(writes, "create", lambda *_, **__: False)
    assert by_either == made("silver.spark")


def test_what_delta_rs_fails_to_make_spark_makes(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, *_: object, **__: object) -> None:
        Path(path, "_delta_log").mkdir(parents=True)
        raise OSError("no space left on device")

    monkeypatch.setattr(DeltaTable, "create", fail)
    assert Lake(spark, project).create(replace(BOATS, name="silver.ships"))
    assert Lake(spark, project).table("silver.ships").schema == BOATS.schema


def test_a_table_that_is_as_declared_is_left_alone(spark: SparkSession, project: Settings) -> None:
    before = versions(project)
    assert not Lake(spark, project).create(BOATS)
    assert versions(project) == before


def test_a_table_gains_columns_at_any_depth(spark: SparkSession, project: Settings) -> None:
    columns = """
        id BIGINT, name STRING, day DATE,
        owner STRUCT<`born-in`: INT, name: STRING, home: STRUCT<street: STRUCT<number: INT>, city: STRING>>
    """
    Lake(spark, project).create(replace(BOATS, columns=columns))
    boats = Lake(spark, project).table(BOATS.name).read()
    assert boats.schema.simpleString() == (
        "struct<id:bigint,owner:struct<name:string,home:struct<city:string,street:struct<number:int>>,born-in:int>,"
        "day:date,name:string>"
    )
    [row] = boats.selectExpr("owner.home.city", "owner.home.street", "owner.`born-in`", "name").collect()
    assert tuple(row) == ("Rome", None, None, None)


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        (
            "id STRING",
            "silver.boats.id is bigint in the table, but declared as string: CAST it, or declare it under another name",
        ),
        (
            "owner STRUCT<home: STRUCT<city: INT>>",
            "silver.boats.owner.home.city is string in the table, but declared as int: CAST it, or declare it under "
            "another name",
        ),
        (
            "new INT, owner STRING",
            "silver.boats.owner is struct<name:string,home:struct<city:string>> in the table, but declared as string: "
            "CAST it, or declare it under another name",
        ),
        (
            "ID BIGINT",
            "silver.boats.id is `id` in the table, but declared as `ID`: name it as there, or declare it under another "
            "name",
        ),
        (
            "owner STRUCT<home: STRUCT<City: STRING>>",
            "silver.boats.owner.home.city is `city` in the table, but declared as `City`: name it as there, or declare "
            "it under another name",
        ),
    ],
)
def test_a_column_of_another_type_is_refused(
    spark: SparkSession, project: Settings, columns: str, difference: str
) -> None:
    before = versions(project)
    with pytest.raises(ConfigurationError) as refused:
        Lake(spark, project).create(replace(BOATS, columns=columns))
    assert (str(refused.value), versions(project)) == (difference, before)


def test_what_is_not_declared_any_more_is_null(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).create(replace(BOATS, columns="id BIGINT"))
    held = Lake(spark, project).table(BOATS.name).read()
    rows = spark.sql("SELECT 2L AS id").transform(with_columns_of, held)
    assert [(row.id, row.owner, row.day) for row in rows.collect()] == [(2, None, None)]
    assert rows.select(*held.columns).schema.simpleString() == held.schema.simpleString()


def test_rows_are_inserted_or_update_what_they_may(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    Lake(lake.spark, project).create(Table(name="silver.cars", columns="id BIGINT, colour STRING, built INT"))
    for rows in ("(1, 'red', 1999)", "(1, 'blue', 2000), (2, 'black', 1926)"):
        cars = lake.spark.sql(f"SELECT * FROM VALUES {rows} AS cars (id, colour, built)")
        Lake(lake.spark, project).table("silver.cars").upsert(cars, on=["id"], update=["colour"])
    table = DeltaTable(project.table_path("silver.cars"))
    assert sorted(table.to_pyarrow_table().to_pylist(), key=lambda car: car["id"]) == [
        {"id": 1, "colour": "blue", "built": 1999},
        {"id": 2, "colour": "black", "built": 1926},
    ]
    assert [commit["operation"] for commit in table.history()] == ["MERGE", "WRITE", "CREATE TABLE"]


def test_a_table_of_an_earlier_version_gets_what_it_lacks(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    crews = Table(name="silver.crews", columns="id BIGINT, members ARRAY<STRUCT<name: STRING, rank: ARRAY<STRING>>>")
    columns = "id BIGINT, members ARRAY<STRUCT<name: STRING>>"
    lake.spark.sql(f"CREATE TABLE delta.`{project.table_path(crews.name)}` ({columns}) USING delta")
    Lake(lake.spark, project).table(crews.name).append(
        lake.spark.sql("SELECT 1L AS id, array(named_struct('name', 'Ada')) AS members")
    )
    Lake(lake.spark, project).create(crews)
    assert [row.asDict(recursive=True) for row in Lake(lake.spark, project).table(crews.name).read().collect()] == [
        {"id": 1, "members": [{"name": "Ada", "rank": None}]}
    ]
    assert Lake(lake.spark, project).table(crews.name).delta_property("delta.logRetentionDuration") == "interval 7 days"
    before = versions(project)
    Lake(lake.spark, project).create(crews)
    assert versions(project) == before


def test_appends_write_checksums_again_after_a_compaction(spark: SparkSession, project: Settings) -> None:
    Lake(spark, project).table(BOATS.name).append(Lake(spark, project).table(BOATS.name).read())
    DeltaTable(project.table_path(BOATS.name)).optimize.compact()
    Lake(spark, project).create(BOATS)
    Lake(spark, project).table(BOATS.name).append(Lake(spark, project).table(BOATS.name).read())
    checksums = [file.name for file in log_of(project, BOATS).glob("[0-9]*.crc")]
    assert sorted(checksums) == [f"{version:020}.crc" for version in (0, 1, 2, 4)]


def log_of(settings: Settings, table: Table) -> Path:
    return Path(settings.table_path(table.name)) / "_delta_log"


@pytest.mark.parametrize(
    "left",
    [
        {".00000000000000000000.json.5c1f.tmp": "{"},
        {"00000000000000000000.crc": ""},
        {"00000000000000000000.json": ""},
        {"00000000000000000000.json": '{"commitInfo":{}}\n{"proto'},
        {"00000000000000000000.json": '{"commitInfo":{}}\n', "00000000000000000000.crc": '{"tableSizeBytes":0}'},
    ],
    ids=["draft", "checksum", "empty", "half a line", "a line"],
)
def test_a_table_whose_creation_was_cut_off_is_created(lake: Lake, tmp_path: Path, left: dict[str, str]) -> None:
    project = own_home(lake.settings, tmp_path)
    log_of(project, BOATS).mkdir(parents=True)
    for name, text in left.items():
        (log_of(project, BOATS) / name).write_text(text)
    assert [Lake(lake.spark, project).create(BOATS), Lake(lake.spark, project).create(BOATS)] == [True, False]
    assert Lake(lake.spark, project).table(BOATS.name).read().count() == 0


@pytest.mark.parametrize("left", [None, ""])
def test_rows_without_a_log_are_left_alone(spark: SparkSession, project: Settings, left: str | None) -> None:
    log, table = log_of(project, BOATS), Path(project.table_path(BOATS.name))
    shutil.rmtree(log)
    if left is not None:
        log.mkdir()
        (log / "00000000000000000000.json").write_text(left)
    before = sorted(table.rglob("*"))
    with pytest.raises(LakehouseError, match=f"^silver.boats: {table} has data files, but no log: restore its"):
        Lake(spark, project).create(BOATS)
    assert sorted(table.rglob("*")) == before


def test_a_commit_that_a_power_cut_has_emptied_is_named(spark: SparkSession, project: Settings) -> None:
    last = log_of(project, BOATS) / "00000000000000000001.json"
    last.write_text("")
    with pytest.raises(LakehouseError, match=f"^silver.boats: {last}: torn, as by a power cut"):
        Lake(spark, project).create(BOATS)
