"""Tables, each declared once; and how a declared table is created, read and written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from lakehouse.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Delta table. `name` is `layer.table`, `columns` are Spark DDL."""

    name: str
    columns: str
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties, https://docs.delta.io/latest/table-properties.html"""


POSITION = "STRUCT<partition: INT, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT>"
"""Which message of a topic a row was made from."""

POSITION_OF_MESSAGE = "struct(partition, ledger_id, entry_id, batch_index)"


def create_table(spark: SparkSession, settings: Settings, table: Table) -> bool:
    """Create the table unless it exists, and say whether it was created."""
    if table_exists(spark, settings, table.name):
        return False
    partitioned = f"PARTITIONED BY ({', '.join(table.partition_by)})" if table.partition_by else ""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in table.properties.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{settings.table_path(table.name)}` ({table.columns}) USING delta "
        f"{partitioned} {f'TBLPROPERTIES ({properties})' if properties else ''}"
    )
    return True


def table_exists(spark: SparkSession, settings: Settings, name: str) -> bool:
    """Whether the table has a version; far cheaper than to ask Delta. A log without one is left by a killed process."""
    return path_exists(spark, f"{settings.table_path(name)}/_delta_log/[0-9]*")


def path_exists(spark: SparkSession, path: str) -> bool:
    """Whether a path, or one that a glob pattern stands for, exists, in any file system that Spark knows."""
    system, where = _file_system(spark, path)
    found = system.globStatus(where)
    return found is not None and len(found) > 0


def remove_path(spark: SparkSession, path: str) -> None:
    """Remove a folder and all in it, if it is there."""
    system, where = _file_system(spark, path)
    system.delete(where, True)


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of a path, in the JVM, and the path there."""
    jvm = spark._jvm
    assert jvm is not None
    where = jvm.org.apache.hadoop.fs.Path(path)
    return where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), where


def read_table(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    return spark.read.format("delta").load(settings.table_path(name))


def pin_table(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    """The table as it is now, and stays: without that, a frame reads the newest version each time it is run."""
    path = settings.table_path(name)
    return spark.read.format("delta").option("versionAsOf", _snapshot(spark, path).version()).load(path)


def table_id(spark: SparkSession, settings: Settings, name: str) -> str:
    """What tells the table from one that is made anew in its place."""
    return str(_snapshot(spark, settings.table_path(name)).metadata().id())


def _snapshot(spark: SparkSession, path: str) -> Any:
    jvm = spark._jvm
    assert jvm is not None
    # What DeltaTable.history(1) would tell in 200 ms, this does in 5.
    return jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(spark._jsparkSession, path)._2()


def delta_table(spark: SparkSession, settings: Settings, name: str) -> DeltaTable:
    return DeltaTable.forPath(spark, settings.table_path(name))


def append(rows: DataFrame, settings: Settings, name: str) -> None:
    rows.write.format("delta").mode("append").save(settings.table_path(name))


def append_missing(rows: DataFrame, settings: Settings, name: str, *, on: Sequence[str]) -> None:
    """Append the rows that the table does not hold yet; a MERGE would do the same at several times the fixed cost."""
    held = read_table(rows.sparkSession, settings, name).select(*on)
    append(rows.join(held, on=list(on), how="left_anti").select(*rows.columns), settings, name)


@contextmanager
def kept(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed once, though several writes read them."""
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield rows
    finally:
        rows.unpersist()
