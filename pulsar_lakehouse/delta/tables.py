"""Declares, creates, reads and writes Delta tables."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError, PermanentError
from pulsar_lakehouse.locks import exclusive
from pulsar_lakehouse.settings import Settings, is_remote

Ddl = str | Callable[[], str]
"""Columns as Spark DDL, or what derives it: a function that needs Spark."""


def as_ddl(columns: Ddl) -> str:
    return columns if isinstance(columns, str) else columns()


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Delta table. `name` is `layer.table`. Only its columns may need Spark."""

    name: str
    columns: Ddl
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties, https://docs.delta.io/latest/table-properties.html"""

    @property
    def ddl(self) -> str:
        """The columns as Spark DDL."""
        return as_ddl(self.columns)

    @property
    def schema(self) -> StructType:
        """The declared columns. Needs Spark."""
        declared = StructType.fromDDL(self.ddl)
        assert isinstance(declared, StructType)
        return declared


COMMITS = "_delta_log/[0-9]*.json"
LAST_CHECKPOINT = "_delta_log/_last_checkpoint"

POSITION = "STRUCT<partition: INT, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT>"
"""The position in its topic of the message that a row was made from."""

KEEP = timedelta(days=7)
"""How long commits, and files that left a table, are kept: a stream or a reader may still need them."""

FEED = KEEP - timedelta(days=1)
"""How long a change feed is certain to be complete."""

CHECKPOINT_INTERVAL = "delta.checkpointInterval"
EACH_TABLE = {"delta.logRetentionDuration": f"interval {KEEP.days} days", CHECKPOINT_INTERVAL: "10"}
"""Properties of all tables. A log must not be kept longer than the files that it names.

delta-rs makes a checkpoint of it as often as Spark does by default, until `lakehouse maintain` finds that it is large.
"""

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
"""The setting of a session that says why its commits are made. `lakehouse trace` tells that."""

POSITION_OF_MESSAGE = "struct(partition, ledger_id, entry_id, batch_index)"


def commit_file(version: int) -> str:
    """The path of a commit within its table."""
    return f"_delta_log/{version:020}.json"


def create_table(spark: SparkSession, settings: Settings, table: Table) -> bool:
    """Create the table unless it exists, and return whether it was created.

    A table that exists, perhaps from an earlier version, gets the columns and Delta properties that it lacks. A table
    whose creation was interrupted is created. Raises ConfigurationError if an existing column does not have the
    declared type, and PermanentError if the table's log is torn or lost.
    """
    path = settings.table_path(table.name)
    if not is_created(spark, path):
        with exclusive(settings.home / "leases" / f"{table.name}.creation"):
            if not is_created(spark, path):  # another process may have created it while this one waited
                _create(spark, settings, table)
                return True
    last = f"{path}/{commit_file(table_version(spark, settings, table.name))}"
    if _file_status(spark, last).getLen() == 0:  # Delta has read it as a version without changes
        raise PermanentError(
            f"{table.name}: {last}: torn, as by a power cut: see *After a power cut* in docs/operations.md"
        )
    _add_columns(spark, settings, table)
    _add_properties(spark, settings, table)
    _renew_checksum(spark, settings, table.name)
    return False


def _create(spark: SparkSession, settings: Settings, table: Table) -> None:
    # Its libraries are slow to import, and declarations import this module.
    from pulsar_lakehouse.delta.writes import create

    path = settings.table_path(table.name)
    if path_exists(spark, f"{path}/{{*,*/*}}.parquet"):
        raise PermanentError(
            f"{table.name}: {path} has data files, but no log: restore its _delta_log, or move the folder away to have "
            "the table created again"
        )
    delete_path(spark, f"{path}/_delta_log")  # Delta would take an empty folder for a table
    properties = {**EACH_TABLE, **table.properties}
    if create(settings, table, properties):
        return
    partitioned = f"PARTITIONED BY ({', '.join(table.partition_by)})" if table.partition_by else ""
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({table.ddl}) USING delta {partitioned} "
            f"TBLPROPERTIES ({_as_sql(properties)})"
        )
    except PySparkException:
        if not is_created(spark, path):  # else another machine has created it meanwhile
            raise


def _as_sql(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = {_literal(value)}" for name, value in properties.items())


def _literal(text: str) -> str:
    """A text in SQL. A dollar sign, with which a variable would begin, is escaped too."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def remove_table(spark: SparkSession, settings: Settings, name: str) -> None:
    """Remove a table, if it exists. A crash leaves no half of it in its place.

    A folder is renamed first. In an object store, that would copy it: its log goes first, from the newest commit to the
    oldest, so that an older version of the table is there until none is.
    """
    path = settings.table_path(name)
    if is_remote(path):
        _remove_stored(spark, path)
        return
    removed = f"{settings.warehouse_root}/.removed/{name.replace('.', '/')}"
    delete_path(spark, removed)
    if path_exists(spark, path):
        files, where = _file_system(spark, path)
        target = java_class(spark, "org.apache.hadoop.fs.Path")(removed)
        files.mkdirs(target.getParent())
        if not files.rename(where, target):
            raise LakehouseError(f"{name}: {path} can't be moved to {removed}")
        java_class(spark, "org.apache.spark.sql.delta.DeltaLog").invalidateCache(spark._jsparkSession, where)
        delete_path(spark, removed)


def _remove_stored(spark: SparkSession, path: str) -> None:
    files, where = _file_system(spark, path)
    log = files.globStatus(_file_system(spark, f"{path}/_delta_log/*")[1]) or ()  # by name
    for file in reversed(log):
        files.delete(file.getPath(), True)
    delete_path(spark, path)
    java_class(spark, "org.apache.spark.sql.delta.DeltaLog").invalidateCache(spark._jsparkSession, where)


def is_created(spark: SparkSession, path: str) -> bool:
    """Whether there is a table at the path, and its creation was not interrupted."""
    if path_exists(spark, f"{path}/{commit_file(0)}"):
        return path_exists(spark, f"{path}/{commit_file(1)}") or not _is_torn(spark, path)
    return _has_commits(spark, path)


def _has_commits(spark: SparkSession, path: str) -> bool:
    """Whether a log has commits. A long log is not listed, unless a cleanup and then a power cut left neither file."""
    return any(path_exists(spark, f"{path}/{file}") for file in (commit_file(0), LAST_CHECKPOINT, COMMITS))


def _is_torn(spark: SparkSession, path: str) -> bool:
    """Whether the first commit of a table is incomplete. Commits are renamed into place, so nobody is writing it."""
    try:
        actions = [json.loads(line) for line in read_text(spark, f"{path}/{commit_file(0)}").splitlines()]
    except (ValueError, Py4JJavaError):
        return True
    return not {"protocol", "metaData"} <= {name for action in actions for name in action}


def _add_columns(spark: SparkSession, settings: Settings, table: Table) -> None:
    lacking = []
    for path, held, declared in column_changes(table_schema(spark, settings, table.name), table.schema):
        if held is None:
            lacking.append(f"{'.'.join(f'`{name}`' for name in path)} {declared}")
        elif declared is not None:
            raise ConfigurationError(
                f"{table.name}.{'.'.join(path)} is {held} in the table, but declared as {declared}: CAST it, or "
                "declare it under another name"
            )
        elif len(path) > 1:  # a MERGE can't write a struct that lacks a field
            raise ConfigurationError(
                f"{table.name}.{'.'.join(path)} is {held} in the table, but not declared any more: declare it, or make "
                "the table again by `lakehouse rebuild`"
            )
    if lacking:
        spark.sql(f"ALTER TABLE delta.`{settings.table_path(table.name)}` ADD COLUMNS ({', '.join(lacking)})")


def _add_properties(spark: SparkSession, settings: Settings, table: Table) -> None:
    """Set Delta's properties. What an earlier version has not declared, it has not set."""
    held = _snapshot(spark, settings, table.name).metadata().configuration()
    declared = {**EACH_TABLE, **table.properties}.items()
    lacking = {name: value for name, value in declared if name.startswith("delta.") and not held.contains(name)}
    if lacking:
        spark.sql(f"ALTER TABLE delta.`{settings.table_path(table.name)}` SET TBLPROPERTIES ({_as_sql(lacking)})")


def _renew_checksum(spark: SparkSession, settings: Settings, name: str) -> None:
    """Let the next commit write a checksum, if the last one has none, as after a compaction without Spark.

    Otherwise no append would write one any more, and Delta would read from the log what the checksum says.
    """
    snapshot = _snapshot(spark, settings, name)
    if snapshot.checksumOpt().isEmpty():
        snapshot.numOfFiles()  # computes all that a checksum is derived from


def column_changes(
    held: StructType, declared: StructType, within: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str | None, str | None]]:
    """The columns in which a table differs from its declaration, also within structs and arrays of them.

    Each is the path of its name, its type in the table and its declared one; None stands for the type of a column that
    is not there.
    """
    before, after = ({column.name: column.dataType for column in columns} for columns in (held, declared))
    for name in dict.fromkeys((*after, *before)):
        was, becomes = before.get(name), after.get(name)
        path = (*within, name)
        if isinstance(was, ArrayType) and isinstance(becomes, ArrayType) and isinstance(was.elementType, StructType):
            was, becomes, path = was.elementType, becomes.elementType, (*path, "element")
        if isinstance(was, StructType) and isinstance(becomes, StructType):
            yield from column_changes(was, becomes, path)
            continue
        held_as, declared_as = (None if kind is None else kind.simpleString() for kind in (was, becomes))
        if held_as != declared_as:
            yield path, held_as, declared_as


def table_exists(spark: SparkSession, settings: Settings, name: str) -> bool:
    """Whether the table has a commit: a killed process can leave an empty log. Much cheaper than asking Delta."""
    return _has_commits(spark, settings.table_path(name))


def list_tables(spark: SparkSession, settings: Settings, layer: str) -> list[str]:
    """The sorted names of a layer's tables, in any file system that Spark supports."""
    files, where = _file_system(spark, f"{settings.table_path(layer)}/*/_delta_log")
    return sorted(f"{layer}.{log.getPath().getParent().getName()}" for log in files.globStatus(where) or ())


def path_exists(spark: SparkSession, path: str) -> bool:
    """Whether a path exists, or any path that matches a glob pattern, in any file system that Spark supports."""
    files, where = _file_system(spark, path)
    found = files.globStatus(where)
    return found is not None and len(found) > 0


def delete_path(spark: SparkSession, path: str) -> None:
    """Delete a folder with its contents, if it exists."""
    files, where = _file_system(spark, path)
    files.delete(where, True)


def modification_time(spark: SparkSession, path: str) -> int:
    """When a file was last written, in epoch milliseconds."""
    return int(_file_status(spark, path).getModificationTime())


def _file_status(spark: SparkSession, path: str) -> Any:
    files, where = _file_system(spark, path)
    return files.getFileStatus(where)


def read_text(spark: SparkSession, path: str) -> str:
    """The text of a small file. Raises UnicodeDecodeError if it is not UTF-8, and Py4JJavaError if it can't be read."""
    files, where = _file_system(spark, path)
    stream = files.open(where)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file, in place of the one that is there."""
    files, where = _file_system(spark, path)
    stream = files.create(where, True)
    try:
        stream.write(text.encode())
    finally:
        stream.close()


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's objects for the file system and the path."""
    where = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), where


def java_class(spark: SparkSession, name: str) -> Any:
    """The class with a full name. `jvm.org.apache…` would search every jar for each part of the name, in 2 ms."""
    return getattr(spark._jvm, name)


def read_table(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    return spark.read.format("delta").load(settings.table_path(name))


def pin_table(spark: SparkSession, settings: Settings, name: str) -> DataFrame:
    """The current version of the table. An unpinned frame reads the newest version each time it is evaluated."""
    return pin_version(spark, settings, name).rows


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """One version of a table."""

    spark: SparkSession
    name: str
    path: str
    version: int
    schema: StructType
    id: str
    """Identifies this version, also if the table is created again in its place."""
    is_known_empty: bool
    """Whether the checksum of the version says that the table is empty; False if there is none."""

    @cached_property
    def rows(self) -> DataFrame:
        """A frame of the table. It takes Spark 10 ms to make one."""
        rows = self.spark.read.format("delta").option("versionAsOf", self.version).load(self.path)
        # A join with a table that is known to be empty needs no planning.
        return rows.where("false") if self.is_known_empty else rows


def pin_version(spark: SparkSession, settings: Settings, name: str) -> Pinned:
    """The current version of the table."""
    snapshot, path = _snapshot(spark, settings, name), settings.table_path(name)
    version = int(snapshot.version())
    return Pinned(
        spark=spark,
        name=name,
        path=path,
        version=version,
        schema=_schema_of(snapshot),
        id=f"{path} {snapshot.metadata().id()} {version}",
        is_known_empty=_is_empty(snapshot),
    )


def is_known_empty(spark: SparkSession, settings: Settings, name: str) -> bool:
    """Whether the checksum of the last commit says that the table is empty; False if there is none."""
    return _is_empty(_snapshot(spark, settings, name))


def _is_empty(snapshot: Any) -> bool:
    """Whether the checksum of the last commit, which is cheap to read, says so; False if there is none."""
    checksum = snapshot.checksumOpt()
    return bool(checksum.isDefined() and checksum.get().numFiles() == 0)


def table_schema(spark: SparkSession, settings: Settings, name: str) -> StructType:
    """The table's current columns."""
    return _schema_of(_snapshot(spark, settings, name))


def _schema_of(snapshot: Any) -> StructType:
    return StructType.fromJson(json.loads(snapshot.schema().json()))


def table_id(spark: SparkSession, settings: Settings, name: str) -> str:
    """Delta's id of the table. A table that is created again in its place has another one."""
    return str(_snapshot(spark, settings, name).metadata().id())


def creation_time(spark: SparkSession, settings: Settings, name: str) -> int:
    """When the table was created, in epoch milliseconds; 0 if its log does not say."""
    created = _snapshot(spark, settings, name).metadata().createdTime()
    return int(created.get()) if created.isDefined() else 0


def table_version(spark: SparkSession, settings: Settings, name: str) -> int:
    return int(_snapshot(spark, settings, name).version())


def table_versions(spark: SparkSession, settings: Settings, names: Iterable[str]) -> dict[str, int]:
    """The versions by table name; -1 for a table that does not exist yet."""
    return {name: table_version(spark, settings, name) for name in names}


def committed_batch(spark: SparkSession, settings: Settings, name: str, stream: str) -> int:
    """The last batch that the stream with this id has appended to the table; -1 if there is none."""
    snapshot = _snapshot(spark, settings, name)
    checksum = snapshot.checksumOpt()
    known = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if known.isDefined():  # without a job, which the snapshot's own map needs
        as_java = java_class(spark, "scala.jdk.javaapi.CollectionConverters").asJava
        return max((int(each.version()) for each in as_java(known.get()) if each.appId() == stream), default=-1)
    last = snapshot.transactions().get(stream)
    return int(last.get()) if last.isDefined() else -1


def has_change_feed(spark: SparkSession, settings: Settings, name: str) -> bool:
    return bool(_snapshot(spark, settings, name).metadata().configuration().contains("delta.enableChangeDataFeed"))


def table_property(spark: SparkSession, settings: Settings, name: str, key: str) -> str | None:
    configuration = _snapshot(spark, settings, name).metadata().configuration()
    return str(configuration.apply(key)) if configuration.contains(key) else None


def set_table_property(spark: SparkSession, settings: Settings, name: str, key: str, value: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{settings.table_path(name)}` SET TBLPROPERTIES ('{key}' = {_literal(value)})")


def read_version(spark: SparkSession, settings: Settings, name: str, version: int) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", version).load(settings.table_path(name))


def has_changes_since(spark: SparkSession, settings: Settings, name: str, version: int) -> bool:
    """Whether the log still has what came after a version, which can be the last one."""
    next_commit = f"{settings.table_path(name)}/{commit_file(version + 1)}"
    return path_exists(spark, next_commit) or version >= table_version(spark, settings, name)


def read_changes(spark: SparkSession, settings: Settings, name: str, first: int, last: int) -> DataFrame:
    """The change feed of the versions from `first` to `last`, both included."""
    feed = spark.read.format("delta").option("readChangeFeed", True)
    versions = {"startingVersion": first, "endingVersion": last}
    return feed.options(**versions).load(settings.table_path(name))


def _snapshot(spark: SparkSession, settings: Settings, name: str) -> Any:
    """Delta's newest snapshot of the table, in 5 ms; DeltaTable.history(1) or a frame's schema takes 200 ms."""
    log = java_class(spark, "org.apache.spark.sql.delta.DeltaLog")
    return log.forTableWithSnapshot(spark._jsparkSession, settings.table_path(name))._2()


def with_columns_of(rows: DataFrame, held: DataFrame) -> DataFrame:
    """The rows with all columns of the table `held`; columns that the rows lack are NULL."""
    undeclared = [column for column in held.schema if column.name not in rows.columns]
    return rows.withColumns({column.name: F.lit(None).cast(column.dataType) for column in undeclared})


def of_keys(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """The rows whose key is in `keys`; NULL counts as a key.

    If there are few keys, Spark filters the rows before it aggregates them.
    """
    same = [rows[name].eqNullSafe(keys[name]) for name in keys.columns]
    return rows.join(keys, on=same, how="left_semi")


def delta_table(spark: SparkSession, settings: Settings, name: str) -> DeltaTable:
    return DeltaTable.forPath(spark, settings.table_path(name))


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """The rows, computed only once even if several queries of the block read them."""
    rows.persist(StorageLevel.MEMORY_AND_DISK_DESER)  # otherwise, PySpark keeps rows serialised and compressed
    try:
        yield rows
    finally:
        rows.unpersist()
