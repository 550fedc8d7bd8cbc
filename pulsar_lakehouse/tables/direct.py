"""Writes a few rows to Delta tables from this process, by delta-rs.

Before Spark commits a few rows, its driver plans and compiles for seconds. delta-rs does not: it makes the same commit
in a tenth of the time.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import obstore
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError
from pyspark.sql import Column

from pulsar_lakehouse import storage
from pulsar_lakehouse.limits import COMPACTED_BYTES, MERGED_BYTES
from pulsar_lakehouse.power_cuts import remove_torn_commits
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables import checksums
from pulsar_lakehouse.tables.checksums import files_written, local_folder, verify
from pulsar_lakehouse.tables.declared import LAST_LOG_CHECKPOINT, Table, commit_file
from pulsar_lakehouse.tables.stored import (
    Ranges,
    bytes_of,
    columns_of,
    ends_of,
    files_of,
    files_within,
    has_known_features,
    stored_table,
)

NO_CLEANUP = PostCommitHookProperties(cleanup_expired_logs=False)
"""A commit does not remove old ones: the log checkpoint that makes up for them may not be on the disk yet."""


def writable(settings: Settings, name: str) -> DeltaTable | None:
    """The table, if delta-rs writes it so that readers find no difference.

    In an object store it does not: where the answer to a commit is lost, Spark's log finds that it was its own.

    delta-rs rounds the bounds of decimals, and leaves NaN out of those of floats. By such bounds, Spark would skip a
    file that has what it looks for. So these columns get none, which delta-rs can't do for those within structs.
    """
    if storage.has_tables(settings):
        return None
    table = stored_table(settings, name)
    if not has_known_features(table):
        return None
    structs = (field for field in columns_of(table) if pa.types.is_struct(field.type))
    has_bounds = "delta.dataSkippingStatsColumns" not in table.metadata().configuration
    return None if has_bounds and any(_has_inexact(field.type) for field in structs) else table


class Within(NamedTuple):
    """A condition that rows of the table meet if a MERGE can match them, so that most of its files are not read."""

    held: Column
    """Over the table as `held`."""
    ranges: Ranges
    """What it says of single columns."""


def _has_inexact(kind: pa.DataType) -> bool:
    """Whether bounds of values of a type may not be exact."""
    if pa.types.is_struct(kind):
        return any(_has_inexact(field.type) for field in kind)
    return bool(pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def writer_properties(table: DeltaTable) -> WriterProperties:
    """How delta-rs writes the files of a table: compressed, and without bounds that are not exact."""
    without = [field.name for field in columns_of(table) if _has_inexact(field.type)]
    none = ColumnProperties(statistics_enabled="NONE")
    return WriterProperties(compression="SNAPPY", column_properties=dict.fromkeys(without, none))


def create(settings: Settings, table: Table, properties: Mapping[str, str]) -> bool:
    """Create a table with all these properties without Spark; returns whether that could be done."""
    if storage.has_tables(settings):
        return False
    try:
        created = DeltaTable.create(
            settings.table_path(table.name),
            Schema.from_json(table.schema.json()),
            mode="ignore",
            partition_by=list(table.partition_by),
            configuration=dict(properties),
            raise_if_key_not_exists=False,  # some properties are our own
        )
    except Exception:  # such as for a type that only Spark knows; of other faults, Spark tells best
        return False
    finish(settings, table.name, created)
    return True


def append_values(settings: Settings, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows, without Spark. A column that a row lacks is NULL; a map is a list of pairs."""
    remove_torn_commits(settings)
    append_arrow(settings, name, pa.Table.from_pylist(rows, schema=columns_of(stored_table(settings, name))))


def append_arrow(settings: Settings, name: str, rows: pa.Table | pa.RecordBatchReader) -> None:
    """Append rows that have all columns of the table, without Spark."""
    remove_torn_commits(settings)
    _append(settings, name, stored_table(settings, name), rows)


def append_batch(settings: Settings, name: str, rows: pa.Table, batch: tuple[str, int], *, seen: DeltaTable) -> None:
    """Like `append_arrow`, as the batch of a stream, given by the stream's id and a number.

    Spark does not append it again, and this fails if the table got a batch of the stream after it was `seen`.
    """
    noted = CommitProperties(app_transactions=[Transaction(*batch, last_updated=int(time.time() * 1000))])
    _append(settings, name, seen, rows, noted)


def _append(
    settings: Settings,
    name: str,
    table: DeltaTable,
    rows: pa.Table | pa.RecordBatchReader,
    noted: CommitProperties | None = None,
) -> None:
    with _named(name):
        write_deltalake(
            table,
            rows,
            mode="append",
            writer_properties=writer_properties(table),
            commit_properties=noted,
            post_commithook_properties=NO_CLEANUP,
        )
    finish(settings, name, table)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Raises what delta-rs raises as a DeltaError that names the table."""
    try:
        yield
    except Exception as error:  # some of them are of no class of their own
        raise DeltaError(f"{name}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What a MERGE does with the rows of a table, `held` in SQL, and others, `new`, that are equal in the columns `on`.

    A row of the table is deleted if `delete`, SQL or whether at all, is TRUE, and else gets the values of `update`, SQL
    by column. A row that the table lacks is inserted with the values of `insert`, if `insert_if` is TRUE.
    """

    on: Sequence[str]
    within: Within | None = None
    delete: str | bool = False
    update: Mapping[str, str] | None = None
    insert: Mapping[str, str] | None = None
    insert_if: str = "true"

    @property
    def condition(self) -> str:
        return " AND ".join(f"held.`{column}` = new.`{column}`" for column in self.on)


def _ranges(rows: pa.Table, on: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """The lowest and highest values of the columns that are integers."""
    integers = (name for name in on if pa.types.is_integer(rows[name].type) and rows[name].null_count < len(rows))
    return {name: widened(*ends_of(rows[name])) for name in integers}


def widened(low: int, high: int) -> tuple[int, int]:
    """Round bounds outwards, to a power of two that is at least eight times their span.

    So near keys of small batches have the same bounds, and the log does not simply list them.
    """
    step = 8 << (high - low).bit_length()
    return max(low // step * step, -(2**63)), min((high // step + 1) * step - 1, 2**63 - 1)


def merge(
    settings: Settings, name: str, table: DeltaTable, rows: pa.Table, how: Merge, *, reason: str | None = None
) -> bool:
    """MERGE the rows into the table, unless delta-rs would have to read too much of it; returns whether it did.

    `reason` is the user metadata of the commit.
    """
    near = how.within.ranges if how.within else _ranges(rows, how.on)
    files = files_within(table, near)
    if bytes_of(files) > MERGED_BYTES:
        return False
    if not rows.num_rows:
        return True
    verify(table, files)
    before, kinds = table.version(), columns_of(table)
    within = [_between(column, kinds.field(column).type, *ends) for column, ends in near.items()]
    condition = " AND ".join([*within, how.condition])
    noted = CommitProperties(custom_metadata={"userMetadata": reason}) if reason else None
    properties = writer_properties(table)
    merger = table.merge(
        rows,
        condition,
        "new",
        "held",
        writer_properties=properties,
        commit_properties=noted,
        post_commithook_properties=NO_CLEANUP,
    )
    if how.delete:
        merger = merger.when_matched_delete(None if how.delete is True else how.delete)
    if how.update is not None:
        merger = merger.when_matched_update(dict(how.update))
    if how.insert is not None:
        merger = merger.when_not_matched_insert(dict(how.insert), how.insert_if)
    with _named(name):
        merger.execute()
    if table.version() > before:
        finish(settings, name, table)
    return True


def compact(settings: Settings, name: str, table: DeltaTable) -> int:
    """Rewrite small files to fewer, larger ones, and return how many."""
    verify(table, _small_files(table))
    done = table.optimize.compact(
        target_size=COMPACTED_BYTES, writer_properties=writer_properties(table), post_commithook_properties=NO_CLEANUP
    )
    if rewritten := int(done["numFilesRemoved"]):
        finish(settings, name, table)
    return rewritten


def _small_files(table: DeltaTable) -> pa.Table:
    """The files that are not alone in their partition in being small."""
    files = files_of(table)
    small = files.filter(pc.less(files["size_bytes"], COMPACTED_BYTES))
    partitions = [name for name in small.column_names if name.startswith("partition.")]
    values = list(zip(*(small[name].to_pylist() for name in partitions), strict=True)) or [()] * len(small)
    number = Counter(values)
    return small.filter(pa.array([number[each] > 1 for each in values], pa.bool_()))


def _between(column: str, kind: pa.DataType, low: Any, high: Any) -> str:
    """SQL of delta-rs. Integers are kept to those that the column can have, which are the ones it can compare with."""
    if isinstance(low, int):
        most = 2 ** (kind.bit_width - 1) - 1
        low, high = max(low, -most - 1), min(high, most)
    elif isinstance(low, date):
        low, high = (f"DATE '{end}'" for end in (low, high))
    else:
        low, high = ("'{}'".format(end.replace("'", "''")) for end in (low, high))
    return f"held.`{column}` BETWEEN {low} AND {high}"


def write_checksums(table: DeltaTable) -> None:
    """Write the checksums of the files of the last commit, and of what was written into the log for it."""
    if (where := local_folder(table)) is not None:
        of_version = commit_file(table.version())
        in_log = [of_version, of_version.replace(".json", ".checkpoint.parquet")]
        if (where / in_log[1]).exists():
            in_log.append(LAST_LOG_CHECKPOINT)
        checksums.write_checksums(where, [*files_written(where / of_version), *in_log])


def finish(settings: Settings, name: str, table: DeltaTable) -> None:
    """Do after a commit of delta-rs what Spark does with it: checksums, and all of it is on the disk."""
    with suppress(OSError):  # they may be missing
        write_checksums(table)
    storage.sync_table(settings, name)
    _write_version_checksum(settings, name, table)


def _write_version_checksum(settings: Settings, name: str, table: DeltaTable) -> None:
    """Write the checksum of the table's version, as Spark does with each commit. It may be missing.

    Delta takes from it what it would otherwise read the log for: schema, properties, and whether there are rows.
    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file
    """
    metadata, protocol, sizes = table.metadata(), table.protocol(), pa.table(table.get_add_actions())["size_bytes"]
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    checksum = {
        "tableSizeBytes": pc.sum(sizes).as_py() or 0,
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": metadata.id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.configuration,
            "createdTime": metadata.created_time,
        },
        "protocol": {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            **{key: value for key, value in features.items() if value is not None},
        },
    }
    file = commit_file(table.version()).replace(".json", ".crc")
    with suppress(BaseError, OSError):
        obstore.put(storage.folder(settings, settings.table_path(name)), file, json.dumps(checksum).encode())
