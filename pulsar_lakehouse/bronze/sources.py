"""Lands a source: reads a snapshot of it, and appends to bronze what differs from what bronze says of each key.

A difference is a message: its payload is the row as JSON, or NULL if the snapshot lacks the key. Its times are that of
the snapshot, and its position is the snapshot's number, which is its time in milliseconds, and the place among its
differences. One commit has them all. So nothing has to be remembered: after a crash, the next snapshot is compared with
whatever was committed.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.erasures import ERASURES
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.bronze.source_readers import has_texts, parts_of, state_of, told
from pulsar_lakehouse.bronze.source_rows import identifier, key_sql, payload_sql
from pulsar_lakehouse.contracts.sources import Postgres, Source
from pulsar_lakehouse.errors import SourceError
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import SnapshotRecord, keep_snapshot, snapshot_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import columns_of, dataset_of, files_of, is_stored, stored_table

MEMORY = "1GB"
"""What DuckDB takes. It keeps more on disk."""
RETRY_SECONDS = 60.0
"""Seconds after which a source that failed is read again, in a process that runs round after round."""

LATEST = """
    SELECT key, arg_max_null(CASE WHEN payload IS NOT NULL THEN md5_number(payload) END, ledger_id) AS hash
    FROM bronze GROUP BY key
"""
"""The hash of the payload that is the state of each key; NULL for one that is deleted."""
COMPARE = f"""
    CREATE TABLE latest AS {LATEST};
    CREATE TABLE changes AS
        SELECT coalesce(snapshot.key, latest.key) AS key, payload
        FROM snapshot FULL JOIN latest ON snapshot.key = latest.key
        WHERE CASE WHEN snapshot.key IS NULL THEN hash IS NOT NULL
              ELSE hash IS DISTINCT FROM md5_number(payload) END;
"""
MESSAGES = """
    SELECT $name AS topic, 0::INT AS partition, $number::BIGINT AS ledger_id, entry_id, -1::INT AS batch_index, key,
        payload, read_at AS event_time, read_at AS publish_time, $place AS producer,
        MAP {}::MAP(VARCHAR, VARCHAR) AS properties, NULL::BIGINT AS schema_version, now() AS landed_at,
        read_at::DATE AS publish_date
    FROM (
        SELECT *, row_number() OVER (ORDER BY key) - 1 AS entry_id, make_timestamptz($number * 1000) AS read_at
        FROM changes
    )
"""


class Counts(NamedTuple):
    rows: int
    """Of the snapshot."""
    changes: int
    deletes: int
    known: int
    """Rows that bronze had before."""


@dataclass
class SourceLanding:
    """Lands a source, as the work of a stream that needs no Spark."""

    lake: Lake
    source: Source
    keys: tuple[str, ...]
    """The fields of its key."""
    always: bool = False
    """Whether a snapshot is read though nothing is known to be new."""
    accept_deletes: bool = False
    """Whether a snapshot may lack more rows than `max_deletes` allows."""
    failed: tuple[float, SourceError] | None = None
    """When it failed, and why, if it has not landed since."""

    def __call__(self, permit: Permit) -> int:
        """The number of messages. Raises SourceError if the source can't be read, or its snapshot is not taken."""
        if self.failed and time.monotonic() < self.failed[0] + RETRY_SECONDS:
            raise self.failed[1]
        try:
            is_new = self.always or news(self.lake.settings, self.source) is not None
            with told(self.source):
                landed = self._land(permit) if is_new else 0
        except SourceError as error:
            self.failed = time.monotonic(), error
            raise
        self.failed = None
        return landed

    def _land(self, permit: Permit) -> int:
        settings, source = self.lake.settings, self.source
        with _duckdb() as local:
            state, read_at = state_of(settings, source), time.time()
            self._take(local)
            name = source.topic.bronze_table
            with permit.used():
                self.lake.create(bronze_table(source.topic))
            table = stored_table(settings, name)
            counts, number = compare(local, table), newest_number(table)
            if not self.accept_deletes:
                refuse_deletes(source, counts)
            if counts.changes:
                number = max(int(read_at * 1000), number + 1)
                with permit.used():
                    self.lake.table(name).append_arrow(messages(local, source, number, columns_of(table)))
        record = SnapshotRecord(
            source=source.name,
            read_at=read_at,
            rows=counts.rows,
            changes=counts.changes,
            state=state,
            number=number,
        )
        keep_snapshot(settings, record)
        return counts.changes

    def _take(self, local: duckdb.DuckDBPyConnection) -> None:
        """Make the table `snapshot`, of keys and payloads. Raises SourceError if a key is not there, or there twice."""
        source, of_texts = self.source, has_texts(self.source)
        fields = {each.name: each for each in source.columns}
        key = key_sql([fields[name] for name in self.keys], of_texts=of_texts)
        payload = payload_sql(source.columns, of_texts=of_texts)
        local.execute("CREATE TABLE snapshot (key VARCHAR, payload BLOB)")
        for part in parts_of(self.lake.settings, source):
            local.register("part", part)
            local.execute(f"INSERT INTO snapshot SELECT {key}, encode({payload}) FROM part")
            local.unregister("part")
        names = ", ".join(self.keys)
        [(rows, lacking)] = local.execute("SELECT count(*), count_if(key IS NULL) FROM snapshot").fetchall()
        if lacking:
            raise SourceError(f"{source.place}: {names}, the key, is NULL in {lacking:,} of {rows:,} rows")
        twice = "SELECT key, count(*) FROM snapshot GROUP BY key HAVING count(*) > 1 ORDER BY key LIMIT 1"
        for value, count in local.execute(twice).fetchall():
            raise SourceError(f"{source.place}: {names}, the key, is {value} in {count:,} rows")


@contextmanager
def _duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    with TemporaryDirectory(prefix="lakehouse-source-") as folder, duckdb.connect() as connection:
        connection.execute(f"SET temp_directory = '{folder}'; SET memory_limit = '{MEMORY}'; SET TimeZone = 'UTC'")
        yield connection


def newest_number(table: DeltaTable) -> int:
    """The number of the newest snapshot that had changes, by the log of the bronze table; -1 if it has no rows."""
    files = files_of(table)
    newest = pc.max(files["max.ledger_id"]).as_py() if "max.ledger_id" in files.column_names else None
    return -1 if newest is None else int(newest)


def compare(local: duckdb.DuckDBPyConnection, table: DeltaTable) -> Counts:
    """Make the table `changes`: by key, the payload that bronze has not; NULL if the snapshot lacks the key."""
    local.register("bronze", dataset_of(table))
    local.execute(COMPARE)
    counted = """
        SELECT (SELECT count(*) FROM snapshot), (SELECT count(*) FROM changes),
            (SELECT count(*) FROM changes WHERE payload IS NULL), (SELECT count(hash) FROM latest)
    """
    return Counts(*local.execute(counted).fetchall()[0])


def refuse_deletes(source: Source, counts: Counts) -> None:
    """Raises SourceError if the snapshot lacks more of the known rows than `max_deletes` allows."""
    if counts.deletes > source.max_deletes * counts.known:
        raise SourceError(
            f"its snapshot lacks {counts.deletes:,} of {counts.known:,} rows, and max_deletes is "
            f"{source.max_deletes:g}: nothing has landed; if they are gone, run `lakehouse land {source.name} "
            "--accept-loss`"
        )


def messages(local: duckdb.DuckDBPyConnection, source: Source, number: int, columns: pa.Schema) -> pa.RecordBatchReader:
    """The changes as messages, with these columns."""
    values = {"name": source.name, "number": number, "place": source.place}
    names = ", ".join(map(identifier, columns.names))
    made = local.sql(f"SELECT {names} FROM ({MESSAGES}) ORDER BY entry_id", params=values).to_arrow_reader()
    return pa.RecordBatchReader.from_batches(columns, (batch.cast(columns) for batch in made))


def with_snapshot(lake: Lake, source: Source, reconciliation: Reconciliation) -> Reconciliation:
    """Compares the rows of the last snapshot with those that bronze has: it is a problem if they are not as many.

    They are not compared if a snapshot is due because bronze has changed since the last one.
    """
    settings, name = lake.settings, source.topic.bronze_table
    record, table = snapshot_record(settings, source.name), stored_table(settings, name)
    if record is None or record.number != newest_number(table) or _erased_since(lake, name, record.read_at):
        return reconciliation
    with _duckdb() as local:
        local.register("bronze", dataset_of(table))
        [(rows,)] = local.execute(f"SELECT count(hash) FROM ({LATEST})").fetchall()
    what = f"the last snapshot of {source.place} has {record.rows:,} rows, and {name} {rows:,}"
    problems = () if rows == record.rows else (what,)
    return replace(reconciliation, snapshot=record.rows, problems=(*reconciliation.problems, *problems))


def _erased_since(lake: Lake, bronze: str, at: float) -> bool:
    """Whether messages of the bronze table were erased since a time, in seconds since 1970."""
    erasures = lake.table(ERASURES.name)
    is_of_table = F.exists("messages", lambda each: each.bronze == bronze)
    since = F.col("at") >= F.timestamp_seconds(F.lit(at))
    return erasures.exists() and not erasures.read().where(is_of_table & since).isEmpty()


def news(settings: Settings, source: Source) -> str | None:
    """Why a snapshot is to be read; None if nothing is new, as far as that is known without reading one.

    Does not need Spark. A source that does not say is one that is to be read, which tells it better.
    """
    name, record = source.topic.bronze_table, snapshot_record(settings, source.name)
    if not is_stored(settings, name):
        return f"{name}: no table"
    if record is None or record.number != newest_number(stored_table(settings, name)):
        return f"{source.name}: a snapshot is due, as {name} is not known to be that of the last one"
    if isinstance(source, Postgres):
        age = time.time() - record.read_at
        return f"{source.name}: a snapshot is due, every {source.every}" if age >= source.seconds else None
    try:
        is_same = state_of(settings, source) == record.state
    except SourceError as error:
        return f"{source.name}: {error}"
    return None if is_same else f"{source.name}: {source.place} has changed"
