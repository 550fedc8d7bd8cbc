"""Delta tables as datasets, which Arrow and DuckDB read."""

from functools import reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyarrow.dataset import Expression, FileSystemDataset, Scanner

MOST_ROWS = 2**30
"""More than a row group has."""


class _Unsliced(FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset whose batches are row groups. Of slices of them, DuckDB refuses those with a struct in a struct."""

    def scanner(self, **options: Any) -> Scanner:
        whole = {"batch_size": MOST_ROWS, "batch_readahead": 1}
        return super().scanner(**whole | options)


def files_of(table: DeltaTable) -> pa.Table:
    """The files of a table: `path`, `size_bytes`, values of partition columns, and bounds of others."""
    return pa.table(table.get_add_actions(flatten=True))


def dataset_of(table: DeltaTable, files: pa.Table | None = None, **options: Any) -> FileSystemDataset:
    """A table for Arrow and DuckDB, or some of its files. `options` are those of deltalake.

    deltalake itself also tells them the bounds of columns. Where a file has none for a column, as Spark writes none for
    booleans, it says NULL, by which they would skip the file. And it fails for dates that Python does not have.
    """
    empty = table.to_pyarrow_dataset(file_pruning_predicate="false", **options)
    rows = (files_of(table) if files is None else files).to_batches()
    partitions = [(name, f"partition.{name}") for name in table.metadata().partition_columns]
    fragments = [
        empty.format.make_fragment(
            unquote(path.as_py()),  # a log has paths as URIs
            empty.filesystem,
            reduce(Expression.__and__, (_is(name, batch[held][row]) for name, held in partitions), pc.scalar(True)),
        )
        for batch in rows
        for row, path in enumerate(batch["path"])
    ]
    return _Unsliced(fragments, empty.schema, empty.format, empty.filesystem)


def _is(column: str, value: pa.Scalar) -> Expression:
    return pc.field(column) == value if value.is_valid else pc.field(column).is_null()
