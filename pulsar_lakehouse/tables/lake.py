"""The tables of a project: `lake.table(name)` is a handle, with what can be done to a table as its methods."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pulsar_lakehouse import storage
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.limits import FEW, FEW_BYTES, HANDFUL
from pulsar_lakehouse.locks import exclusive
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.files import Files, java_class
from pulsar_lakehouse.spark.frames import of_keys, size_of, with_columns_of
from pulsar_lakehouse.spark.session_settings import ADAPTIVE, INTERPRETED, session_settings
from pulsar_lakehouse.tables import direct
from pulsar_lakehouse.tables.declared import COMMITS, EACH_TABLE, LAST_LOG_CHECKPOINT, USER_METADATA, Table, commit_file
from pulsar_lakehouse.tables.direct import Merge
from pulsar_lakehouse.tables.evolution import alterations, properties_in_sql

APPEND_ONLY = "delta.appendOnly"


@dataclass(frozen=True)
class Lake:
    """The tables of a project, and the Spark session that reads and writes them."""

    spark: SparkSession
    settings: Settings
    writes_few: bool = False
    """Whether what is written is so little that delta-rs writes it. Before Spark commits a few rows, its driver plans
    and compiles for seconds; delta-rs makes the same commit in a tenth of the time."""

    def table(self, name: str) -> "LakeTable":
        return LakeTable(self, name)

    @property
    def files(self) -> Files:
        return Files(self.spark)

    def names_in(self, layer: str) -> list[str]:
        """The sorted names of a layer's tables."""
        logs = self.files.matching(f"{self.settings.table_path(layer)}/*/_delta_log")
        return [f"{layer}.{log.split('/')[-2]}" for log in logs]

    def versions(self, names: Iterable[str]) -> dict[str, int]:
        """The versions by table name; -1 for a table that does not exist yet."""
        return {name: self.table(name).version for name in names}

    def within(self, rows: DataFrame) -> Self:
        """The same tables in the session of a stream's batch."""
        return replace(self, spark=rows.sparkSession)

    @contextmanager
    def sized(self, number: int, rows: DataFrame | None = None, *, interpreted: bool = False) -> Iterator["Lake"]:
        """The block handles a batch of so many rows: queries are planned, and rows are written, as its size asks for.

        `rows` are as for `writing`, if the block writes any. For few rows, adaptive execution is off: it plans again
        after each stage, and needs a job for each. With `interpreted`, the queries read nothing but these rows: for a
        handful, no code is generated either.

        It changes session settings, and restores them at the end.
        """
        few = number <= FEW
        planned = ({ADAPTIVE: "false"} if few else {}) | (INTERPRETED if interpreted and number <= HANDFUL else {})
        with session_settings(self.spark, planned):
            yield self if rows is None else self.writing(number, rows)

    def writing(self, number: int, rows: DataFrame) -> "Lake":
        """The lake for writes of these cached `rows`, at most so many of them and none larger."""
        return replace(self, writes_few=number <= FEW and size_of(rows) <= FEW_BYTES)

    def create(self, table: Table) -> bool:
        """Create the table unless it exists, and return whether it was created.

        A table that exists, perhaps from an earlier version, gets the columns and Delta properties that it lacks. A
        table whose creation was interrupted is created. Raises ConfigurationError if an existing column does not have
        the declared type, and PermanentError if the table's log is torn or lost.
        """
        held = self.table(table.name)
        if not held.is_created():
            with exclusive(self.settings.home / "leases" / f"{table.name}.creation"):
                if not held.is_created():  # another process may have created it while this one waited
                    held._create(table)
                    return True
        last = f"{held.path}/{commit_file(held.version)}"
        if self.files.size(last) == 0:  # Delta has read it as a version without changes
            raise PermanentError(
                f"{table.name}: {last}: torn, as by a power cut: see *After a power cut* in docs/operations.md"
            )
        for change in alterations(table, held.schema, held.properties):
            held._alter(change)
        held._renew_checksum()
        return False


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake, whether it exists yet or not."""

    lake: Lake
    name: str

    @property
    def path(self) -> str:
        return self.lake.settings.table_path(self.name)

    def exists(self) -> bool:
        """Whether the table has a commit: a killed process can leave an empty log. Much cheaper than asking Delta.

        A long log is not listed, unless a cleanup and then a power cut left neither file.
        """
        return any(self._has(file) for file in (commit_file(0), LAST_LOG_CHECKPOINT, COMMITS))

    def is_created(self) -> bool:
        """Whether the table exists, and its creation was not interrupted."""
        if self._has(commit_file(0)):
            return self._has(commit_file(1)) or not self._is_torn()
        return self.exists()

    def _has(self, file: str) -> bool:
        return self.lake.files.exists(f"{self.path}/{file}")

    def _is_torn(self) -> bool:
        """Whether the first commit is incomplete. Commits are renamed into place, so nobody is writing it."""
        try:
            text = self.lake.files.read_text(f"{self.path}/{commit_file(0)}")
            actions = [json.loads(line) for line in text.splitlines()]
        except (ValueError, Py4JJavaError):
            return True
        return not {"protocol", "metaData"} <= {name for action in actions for name in action}

    @property
    def _snapshot(self) -> Any:
        """Delta's newest snapshot of the table, in 5 ms; DeltaTable.history(1) or a frame's schema takes 200 ms."""
        log = java_class(self.lake.spark, "org.apache.spark.sql.delta.DeltaLog")
        return log.forTableWithSnapshot(self.lake.spark._jsparkSession, self.path)._2()

    @property
    def version(self) -> int:
        """The current version; -1 for a table that does not exist yet."""
        return int(self._snapshot.version())

    @property
    def schema(self) -> StructType:
        """The table's current columns."""
        return _schema_of(self._snapshot)

    @property
    def id(self) -> str:
        """Delta's id of the table. A table that is created again in its place has another one."""
        return str(self._snapshot.metadata().id())

    @property
    def created_at(self) -> int:
        """When the table was created, in epoch milliseconds; 0 if its log does not say."""
        created = self._snapshot.metadata().createdTime()
        return int(created.get()) if created.isDefined() else 0

    @property
    def is_known_empty(self) -> bool:
        """Whether the checksum of the last commit says that the table is empty; False if there is none."""
        return _is_empty(self._snapshot)

    @property
    def has_change_feed(self) -> bool:
        return self.delta_property("delta.enableChangeDataFeed") is not None

    @property
    def properties(self) -> Mapping[str, str]:
        """All Delta properties of the table."""
        as_java = java_class(self.lake.spark, "scala.jdk.javaapi.CollectionConverters").asJava
        return dict(as_java(self._snapshot.metadata().configuration()))

    def delta_property(self, key: str) -> str | None:
        configuration = self._snapshot.metadata().configuration()
        return str(configuration.apply(key)) if configuration.contains(key) else None

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self._alter(f"SET TBLPROPERTIES ({properties_in_sql(properties)})")

    @contextmanager
    def changeable(self) -> Iterator[None]:
        """In the block, rows of the append-only table can be changed."""
        self.set_properties({APPEND_ONLY: "false"})
        try:
            yield
        finally:
            self.set_properties({APPEND_ONLY: "true"})

    def committed_batch(self, stream: str) -> int:
        """The last batch that the stream with this id has appended to the table; -1 if there is none."""
        snapshot = self._snapshot
        checksum = snapshot.checksumOpt()
        known = checksum.get().setTransactions() if checksum.isDefined() else checksum
        if known.isDefined():  # without a job, which the snapshot's own map needs
            as_java = java_class(self.lake.spark, "scala.jdk.javaapi.CollectionConverters").asJava
            return max((int(each.version()) for each in as_java(known.get()) if each.appId() == stream), default=-1)
        last = snapshot.transactions().get(stream)
        return int(last.get()) if last.isDefined() else -1

    def has_changes_since(self, version: int) -> bool:
        """Whether the log still has what came after a version, which can be the last one."""
        return self._has(commit_file(version + 1)) or version >= self.version

    def read(self, version: int | None = None) -> DataFrame:
        """The rows of a version, or by default of the newest one each time that the frame is evaluated."""
        reader = self.lake.spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(self.path)

    def changes(self, first: int, last: int) -> DataFrame:
        """The change feed of the versions from `first` to `last`, both included."""
        feed = self.lake.spark.read.format("delta").option("readChangeFeed", True)
        return feed.options(startingVersion=first, endingVersion=last).load(self.path)

    def stream(self, **options: Any) -> DataFrame:
        return self.lake.spark.readStream.format("delta").options(**options).load(self.path)

    def pin(self) -> "Pinned":
        """The current version of the table."""
        snapshot = self._snapshot
        version = int(snapshot.version())
        return Pinned(
            table=self,
            version=version,
            schema=_schema_of(snapshot),
            id=f"{self.path} {snapshot.metadata().id()} {version}",
            is_known_empty=_is_empty(snapshot),
        )

    @property
    def delta(self) -> DeltaTable:
        """Delta's own handle."""
        return DeltaTable.forPath(self.lake.spark, self.path)

    def append(self, rows: DataFrame) -> None:
        table = self._written_directly()
        if table is None:
            rows.write.format("delta").mode("append").save(self.path)
        elif (found := rows.to(self.schema).toArrow()).num_rows:
            direct.append_arrow(self.lake.settings, self.name, found)

    def append_arrow(self, rows: pa.RecordBatchReader) -> None:
        """Append rows that have all columns of the table, in one commit. delta-rs does, unless they are in a store."""
        if direct.writable(self.lake.settings, self.name) is None:
            found = self.lake.spark.createDataFrame(rows.read_all()).to(self.schema)
            found.write.format("delta").mode("append").save(self.path)
        else:
            direct.append_arrow(self.lake.settings, self.name, rows)

    def append_missing(self, rows: DataFrame, *, on: Sequence[str]) -> None:
        """Append the rows that the table lacks, by the columns `on`. A MERGE has several times the fixed cost."""
        held = of_keys(self.pin().rows.select(*on), rows.select(*on))
        self.append(rows.join(held, on=list(on), how="left_anti").select(*rows.columns))

    def upsert(self, rows: DataFrame, *, on: Sequence[str], update: Sequence[str] | None = None) -> None:
        """Insert the rows that are new by the columns `on`, and update the others: the columns `update`, or else all.

        Columns that the rows lack count as NULL. `rows` may be evaluated twice. It should not be empty: even then,
        Spark writes a file.
        """
        rows = rows.transform(with_columns_of, self.pin().rows)
        if self.is_known_empty:  # a MERGE would cost several times as much
            self.append(rows.to(self.schema))  # `to` casts the columns, as a MERGE does
            return
        values = {column: f"new.`{column}`" for column in rows.columns}
        updated = {column: values[column] for column in update or rows.columns}
        self.merge(rows, Merge(on=on, update=updated, insert=values))

    def merge(self, rows: DataFrame, how: Merge) -> None:
        """MERGE the rows into the table. They may be evaluated twice. For no rows, Spark would still write a file.

        Two of them can be equal in the columns `on` only if all that match are deleted.
        """
        if (table := self._written_directly()) is not None:
            found = (rows.dropDuplicates(list(how.on)) if how.delete is True else rows).toArrow()
            reason = self.lake.spark.conf.get(USER_METADATA, "")
            if direct.merge(self.lake.settings, self.name, table, found, how, reason=reason):
                return
        condition = F.expr(how.condition) if how.within is None else how.within.held & F.expr(how.condition)
        builder = self.delta.alias("held").merge(rows.alias("new"), condition)
        if how.delete:
            builder = builder.whenMatchedDelete(None if how.delete is True else how.delete)
        if how.update is not None:
            builder = builder.whenMatchedUpdate(set=dict(how.update))
        if how.insert is not None:
            builder = builder.whenNotMatchedInsert(how.insert_if, values=dict(how.insert))
        builder.execute()

    def _written_directly(self) -> Any:
        return direct.writable(self.lake.settings, self.name) if self.lake.writes_few else None

    def remove(self) -> None:
        """Remove the table, if it exists. A crash leaves no half of it in its place.

        A folder is renamed first. In an object store, that would copy it: its log goes first, from the newest commit to
        the oldest, so that an older version of the table is there until none is.
        """
        files, path = self.lake.files, self.path
        if storage.has_tables(self.lake.settings):
            for file in reversed(files.matching(f"{path}/_delta_log/*")):  # by name
                files.delete(file)
            files.delete(path)
            self._forget_log()
            return
        removed = f"{self.lake.settings.warehouse_root}/.removed/{self.name.replace('.', '/')}"
        files.delete(removed)
        if files.exists(path):
            files.move(path, removed)
            self._forget_log()
            files.delete(removed)

    def _forget_log(self) -> None:
        spark = self.lake.spark
        where = java_class(spark, "org.apache.hadoop.fs.Path")(self.path)
        java_class(spark, "org.apache.spark.sql.delta.DeltaLog").invalidateCache(spark._jsparkSession, where)

    def _create(self, table: Table) -> None:
        files, path = self.lake.files, self.path
        if files.exists(f"{path}/{{*,*/*}}.parquet"):
            raise PermanentError(
                f"{table.name}: {path} has data files, but no log: restore its _delta_log, or move the folder away to "
                "have the table created again"
            )
        files.delete(f"{path}/_delta_log")  # Delta would take an empty folder for a table
        properties = {**EACH_TABLE, **table.properties}
        if direct.create(self.lake.settings, table, properties):
            return
        if not self.is_created():
            files.delete(f"{path}/_delta_log")  # as the failed attempt may have left one
        partitioned = f"PARTITIONED BY ({', '.join(table.partition_by)})" if table.partition_by else ""
        try:
            self.lake.spark.sql(
                f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({table.ddl}) USING delta {partitioned} "
                f"TBLPROPERTIES ({properties_in_sql(properties)})"
            )
        except PySparkException:
            if not self.is_created():  # else another machine has created it meanwhile
                raise

    def _alter(self, change: str) -> None:
        self.lake.spark.sql(f"ALTER TABLE delta.`{self.path}` {change}")

    def _renew_checksum(self) -> None:
        """Let the next commit write a checksum, if the last one has none, as after a compaction without Spark.

        Otherwise no append would write one any more, and Delta would read from the log what the checksum says.
        """
        snapshot = self._snapshot
        if snapshot.checksumOpt().isEmpty():
            snapshot.numOfFiles()  # computes all that a checksum is derived from


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """One version of a table. A frame that is not pinned reads the newest version each time it is evaluated."""

    table: LakeTable
    version: int
    schema: StructType
    id: str
    """Identifies this version, also if the table is created again in its place."""
    is_known_empty: bool
    """Whether the checksum of the version says that the table is empty; False if there is none."""

    @property
    def spark(self) -> SparkSession:
        return self.table.lake.spark

    @cached_property
    def rows(self) -> DataFrame:
        """A frame of the table. It takes Spark 10 ms to make one."""
        rows = self.table.read(self.version)
        # A join with a table that is known to be empty needs no planning.
        return rows.where("false") if self.is_known_empty else rows


def _is_empty(snapshot: Any) -> bool:
    """Whether the checksum of the last commit, which is cheap to read, says so; False if there is none."""
    checksum = snapshot.checksumOpt()
    return bool(checksum.isDefined() and checksum.get().numFiles() == 0)


def _schema_of(snapshot: Any) -> StructType:
    return StructType.fromJson(json.loads(snapshot.schema().json()))
