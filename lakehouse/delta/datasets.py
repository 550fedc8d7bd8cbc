"""Delta tables as datasets, which Arrow and DuckDB read."""

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.dataset import Expression, FileSystemDataset, Fragment, get_partition_keys


def dataset_of(table: DeltaTable, *, only: Collection[str] | None = None, **options: Any) -> FileSystemDataset:
    """A table for Arrow and DuckDB. `only` are the files that it has, by default all; `options` are deltalake's.

    deltalake itself also tells them the bounds of columns. Where a file has none for a column, as Spark writes none for
    booleans, it says NULL, by which they would skip the file. Raises DeltaError if there is no such file.
    """
    known, names = table.to_pyarrow_dataset(**options), None if only is None else {_name(path) for path in only}
    columns = table.metadata().partition_columns
    fragments = [
        known.format.make_fragment(file.path, file.filesystem, _partition_of(file, columns))
        for file in known.get_fragments()
        if names is None or _name(file.path) in names
    ]
    if names is not None and len(fragments) != len(names):
        raise DeltaError(f"{len(names)} files are needed, and {len(fragments)} found")
    return FileSystemDataset(fragments, known.schema, known.format, known.filesystem)


def _name(path: str) -> str:
    """The name of a file, without folders, which deltalake does not always encode in the same way."""
    return path.rpartition("/")[2]


def _partition_of(file: Fragment, columns: Sequence[str]) -> Expression:
    """Which values all rows of a file have in these columns."""
    values = get_partition_keys(file.partition_expression)
    known = (pc.field(name).is_null() if values[name] is None else pc.field(name) == values[name] for name in columns)
    return reduce(Expression.__and__, known, pc.scalar(True))
