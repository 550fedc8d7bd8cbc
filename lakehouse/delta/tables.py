"""Tables, each declared once; and how a declared table is created, changed, read and written."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.errors import ConfigurationError, PermanentError
from lakehouse.locks import exclusive
from lakehouse.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Delta table. `name` is `layer.table`, `columns` are Spark DDL."""

    name: str
    columns: str
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties, https://docs.delta.io/latest/table-properties.html"""

    @property
    def schema(self) -> StructType:
        """The declared columns. Needs Spark."""
        declared = StructType.fromDDL(self.columns)
        assert isinstance(declared, StructType)
        return declared


COMMITS = "_delta_log/[0-9]*.json"
FIRST_COMMIT = "_delta_log/00000000000000000000.json"

POSITION = "STRUCT<partition: INT, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT>"
"""Which message of a topic a row was made from."""

FEED = timedelta(days=6)
"""How long a change feed can be relied on: maintenance removes its files after 7 days."""

POSITION_OF_MESSAGE = "struct(partition, ledger_id, entry_id, batch_index)"


def create_table(spark: SparkSession, settings: Settings, table: Table) -> bool:
    """Create the table unless it exists, and say whether it was created. One that exists gains the columns it lacks.

    A table whose creation was cut off is created. Raises ConfigurationError if a column that it has is not of the
    declared type, and PermanentError if its log is torn or lost.
    """
    path = settings.table_path(table.name)
    if not _is_created(spark, path):
        with exclusive(settings.home / "leases" / f"{table.name}.creation"):
            if not _is_created(spark, path):  # nobody else has created it while this process waited
                _create(spark, path, table)
                return True
    last = _commits(spark, path)[-1]
    if last.getLen() == 0:  # Delta would take it for a version in which nothing has changed
        raise PermanentError(
            f"{table.name}: {last.getPath().toUri().getPath()}: torn, as by a power cut: see *After a power cut* in "
            "docs/operations.md"
        )
    _add_columns(spark, settings, table)
    return False


def _create(spark: SparkSession, path: str, table: Table) -> None:
    if path_exists(spark, f"{path}/{{*,*/*}}.parquet"):
        raise PermanentError(
            f"{table.name}: {path} has rows, but no log that says which: bring its _delta_log back, or move the folder "
            "away, to have the table made anew"
        )
    delete_path(spark, f"{path}/_delta_log")  # Delta would take an empty one for a table
    partitioned = f"PARTITIONED BY ({', '.join(table.partition_by)})" if table.partition_by else ""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in table.properties.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({table.columns}) USING delta "
        f"{partitioned} {f'TBLPROPERTIES ({properties})' if properties else ''}"
    )


def _is_created(spark: SparkSession, path: str) -> bool:
    commits = _commits(spark, path)
    return len(commits) > 1 or (len(commits) == 1 and not _is_torn(spark, path))


def _commits(spark: SparkSession, path: str) -> Any:
    """Hadoop's statuses of a table's commits, in order. Other files, such as checksums, make no version."""
    files, where = _file_system(spark, f"{path}/{COMMITS}")
    return files.globStatus(where) or ()


def _is_torn(spark: SparkSession, path: str) -> bool:
    """Whether the first version of a table is no whole one; as a commit is renamed, nobody is just writing it."""
    first = f"{path}/{FIRST_COMMIT}"
    if not path_exists(spark, first):  # older ones were removed after a checkpoint
        return False
    try:
        actions = [json.loads(line) for line in read_text(spark, first).splitlines()]
    except (ValueError, Py4JJavaError):
        return True
    return not {"protocol", "metaData"} <= {name for action in actions for name in action}


def _add_columns(spark: SparkSession, settings: Settings, table: Table) -> None:
    held = table_schema(spark, settings, table.name)
    if lacking := ", ".join(_lacking(table.schema, held, f"{table.name}.")):
        spark.sql(f"ALTER TABLE delta.`{settings.table_path(table.name)}` ADD COLUMNS ({lacking})")


def _lacking(declared: StructType, held: StructType, within: str, path: str = "") -> Iterator[str]:
    """The columns, as DDL, that a table or a struct of it does not have."""
    types = {column.name: column.dataType for column in held}
    for column in declared:
        name, kind, present = f"{path}`{column.name}`", column.dataType, types.get(column.name)
        if present is None:
            yield f"{name} {kind.simpleString()}"
        elif isinstance(kind, StructType) and isinstance(present, StructType):
            yield from _lacking(kind, present, f"{within}{column.name}.", f"{name}.")
        elif kind.simpleString() != present.simpleString():
            raise ConfigurationError(
                f"{within}{column.name} is {present.simpleString()} in the table, but declared as "
                f"{kind.simpleString()}: declare it under another name"
            )


def table_exists(spark: SparkSession, settings: Settings, name: str) -> bool:
    """Whether the table has a version; far cheaper than to ask Delta. A log without one is left by a killed process."""
    return path_exists(spark, f"{settings.table_path(name)}/{COMMITS}")


def list_tables(spark: SparkSession, settings: Settings, layer: str) -> list[str]:
    """The names of all tables of a layer, in any file system that Spark knows."""
    files, where = _file_system(spark, f"{settings.table_path(layer)}/*/_delta_log")
    return sorted(f"{layer}.{log.getPath().getParent().getName()}" for log in files.globStatus(where) or ())


def path_exists(spark: SparkSession, path: str) -> bool:
    """Whether a path, or one that a glob pattern stands for, exists, in any file system that Spark knows."""
    files, where = _file_system(spark, path)
    found = files.globStatus(where)
    return found is not None and len(found) > 0


def delete_path(spark: SparkSession, path: str) -> None:
    """Delete a folder, if it exists, and all in it."""
    files, where = _file_system(spark, path)
    files.delete(where, True)


def modification_time(spark: SparkSession, path: str) -> int:
    """When a file was written last, in epoch milliseconds."""
    files, where = _file_system(spark, path)
    return int(files.getFileStatus(where).getModificationTime())


def read_text(spark: SparkSession, path: str) -> str:
    """A whole file, which has to be small. Raises UnicodeDecodeError or Py4JJavaError."""
    files, where = _file_system(spark, path)
    stream = files.open(where)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's file system and path."""
    where = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), where


def java_class(spark: SparkSession, name: str) -> Any:
    """By its whole name: of `jvm.org.apache…`, each part would be looked for in every jar, in 2 ms."""
    return getattr(spark._jvm, name)


def read_table(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    return spark.read.format("delta").load(settings.table_path(name))


def pin_table(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    """The table as it is now, and stays: without that, a frame reads the newest version each time it is run."""
    return pin_version(spark, settings, name)[1]


def pin_version(spark: SparkSession, settings: Settings, name: str) -> tuple[str, DataFrame]:
    """What tells this version of a table from any other of any table, and the table, as `pin_table` gives it."""
    snapshot, path = _snapshot(spark, settings, name), settings.table_path(name)
    table = spark.read.format("delta").option("versionAsOf", snapshot.version()).load(path)
    # Of what is joined with a table that is known to be empty, there is nothing to plan.
    table = table.where("false") if _is_empty(snapshot) else table
    return f"{path} {snapshot.metadata().id()} {snapshot.version()}", table


def is_known_empty(spark: SparkSession, settings: Settings, name: str) -> bool:
    """Whether the last commit says that the table is empty; False if it does not say."""
    return _is_empty(_snapshot(spark, settings, name))


def _is_empty(snapshot: Any) -> bool:
    """Whether the checksum of the last commit says so, which costs nothing to read; False if it has none."""
    checksum = snapshot.checksumOpt()
    return bool(checksum.isDefined() and checksum.get().numFiles() == 0)


def table_schema(spark: SparkSession, settings: Settings, name: str) -> StructType:
    """The columns that the table has now."""
    return StructType.fromJson(json.loads(_snapshot(spark, settings, name).schema().json()))


def table_id(spark: SparkSession, settings: Settings, name: str) -> str:
    """What tells the table from one that is made anew in its place."""
    return str(_snapshot(spark, settings, name).metadata().id())


def creation_time(spark: SparkSession, settings: Settings, name: str) -> int:
    """When the table was created, in epoch milliseconds."""
    created = _snapshot(spark, settings, name).metadata().createdTime()
    return int(created.get()) if created.isDefined() else 0


def table_version(spark: SparkSession, settings: Settings, name: str) -> int:
    return int(_snapshot(spark, settings, name).version())


def table_versions(spark: SparkSession, settings: Settings, names: Iterable[str]) -> dict[str, int]:
    """By name; -1 for a table that is not there yet."""
    return {name: table_version(spark, settings, name) for name in names}


def committed_batch(spark: SparkSession, settings: Settings, name: str, stream: str) -> int:
    """The last batch that a stream, by its id, has appended to the table; -1 if there is none."""
    last = _snapshot(spark, settings, name).transactions().get(stream)
    return int(last.get()) if last.isDefined() else -1


def has_change_feed(spark: SparkSession, settings: Settings, name: str) -> bool:
    return bool(_snapshot(spark, settings, name).metadata().configuration().contains("delta.enableChangeDataFeed"))


def table_property(spark: SparkSession, settings: Settings, name: str, key: str) -> str | None:
    configuration = _snapshot(spark, settings, name).metadata().configuration()
    return str(configuration.apply(key)) if configuration.contains(key) else None


def set_table_property(spark: SparkSession, settings: Settings, name: str, key: str, value: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{settings.table_path(name)}` SET TBLPROPERTIES ('{key}' = '{value}')")


def read_version(spark: SparkSession, settings: Settings, name: str, version: int) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(settings.table_path(name))


def read_changes(spark: SparkSession, settings: Settings, name: str, first: int, last: int) -> DataFrame:
    """The change data feed of the versions from `first` to `last`, both included."""
    feed = spark.read.format("delta").option("readChangeFeed", True)
    versions = {"startingVersion": first, "endingVersion": last}
    return feed.options(**versions).load(settings.table_path(name))


def _snapshot(spark: SparkSession, settings: Settings, name: str) -> Any:
    """The newest state of a table's log. It tells in 5 ms what DeltaTable.history(1) or a schema would in 200."""
    log = java_class(spark, "org.apache.spark.sql.delta.DeltaLog")
    return log.forTableWithSnapshot(spark._jsparkSession, settings.table_path(name))._2()


def with_columns_of(rows: DataFrame, held: DataFrame) -> DataFrame:
    """The rows with all columns of a table; those that are not declared any more are NULL."""
    undeclared = [column for column in held.schema if column.name not in rows.columns]
    return rows.withColumns({column.name: F.lit(None).cast(column.dataType) for column in undeclared})


def of_keys(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """The rows of these keys, of which NULL can be one.

    Spark takes the others out before it aggregates, if the keys are few.
    """
    same = [rows[name].eqNullSafe(keys[name]) for name in keys.columns]
    return rows.join(keys, on=same, how="left_semi")


def delta_table(spark: SparkSession, settings: Settings, name: str) -> DeltaTable:
    return DeltaTable.forPath(spark, settings.table_path(name))


def append(rows: DataFrame, settings: Settings, name: str) -> None:
    rows.write.format("delta").mode("append").save(settings.table_path(name))


def upsert(
    rows: DataFrame, settings: Settings, name: str, *, on: Sequence[str], update: Sequence[str] | None = None
) -> None:
    """Insert rows, or `update` these columns of those that are held, or all columns. `rows` are read more than once.

    Columns of the table that are not declared any more become NULL. There must be rows: a MERGE of none writes a file.
    """
    spark = rows.sparkSession
    rows = rows.transform(with_columns_of, pin_table(spark, settings, name))
    if is_known_empty(spark, settings, name):  # a MERGE would cost several times as much
        append(rows.to(table_schema(spark, settings, name)), settings, name)  # casts, as a MERGE does
        return
    same = " AND ".join(f"held.{column} = new.{column}" for column in on)
    (
        delta_table(spark, settings, name)
        .alias("held")
        .merge(rows.alias("new"), same)
        .whenMatchedUpdate(set={column: f"new.{column}" for column in update or rows.columns})
        .whenNotMatchedInsertAll()
        .execute()
    )


def append_missing(rows: DataFrame, settings: Settings, name: str, *, on: Sequence[str]) -> None:
    """Append the rows that the table does not hold yet; a MERGE would do the same at several times the fixed cost."""
    held = pin_table(rows.sparkSession, settings, name).select(*on)
    append(rows.join(held, on=list(on), how="left_anti").select(*rows.columns), settings, name)


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed once, though several writes read them."""
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield rows
    finally:
        rows.unpersist()
