"""Which files of a table have one of some keys, when most keys are in no file.

A file of a table never changes. So a process that looks for keys again and again keeps the keys of each file in memory,
and reads only those of files that are new.
"""

from collections import OrderedDict
from functools import reduce
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from lakehouse.delta.datasets import dataset_of

ROOM = 256 * 2**20
"""Bytes of the keys that are kept, of all tables."""
TEXT_BYTES = 40
"""What a text is taken for, before it is read."""


class KeptKeys:
    """The keys of files, in memory. Those that were used least recently make room for others."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._kept: OrderedDict[tuple[str, ...], pa.Table] = OrderedDict()
        self._lock = Lock()

    def files_with(self, table: DeltaTable, files: pa.Table, keys: pa.Table, **options: Any) -> pa.Table | None:
        """The `files` that have one of the keys, or perhaps have one; None if their keys would take too much memory.

        `options` are those of `dataset_of`.
        """
        names, rows = keys.column_names, files["num_records"]
        if not len(files):
            return files
        if rows.null_count or pc.sum(rows).as_py() * sum(map(_bytes_of, keys.schema.types)) > self._room:
            return None
        with self._lock:
            held = self._keys_of(table, files, names, **options)
        is_one = (pc.is_in(held[name], value_set=keys[name].combine_chunks()) for name in names)
        found = np.flatnonzero(reduce(pc.and_, is_one))
        ends = np.cumsum(rows.to_numpy())
        return files.take(np.unique(np.searchsorted(ends, found, side="right")))

    def _keys_of(self, table: DeltaTable, files: pa.Table, names: list[str], **options: Any) -> pa.Table:
        """The keys of all rows, in the order of the files."""
        places = [(table.table_uri, path, *names) for path in files["path"].to_pylist()]
        new = files.filter(pa.array([place not in self._kept for place in places], pa.bool_()))
        if len(new):
            dataset = dataset_of(table, new, **options)
            for path, fragment in zip(new["path"].to_pylist(), dataset.get_fragments(), strict=True):
                self._kept[table.table_uri, path, *names] = fragment.to_table(dataset.schema, columns=names)
        for place in places:
            self._kept.move_to_end(place)
        held = pa.concat_tables([self._kept[place] for place in places])
        room = self._room - sum(each.nbytes for each in self._kept.values())
        while room < 0 and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            room += dropped.nbytes
        return held


def _bytes_of(kind: pa.DataType) -> int:
    return kind.byte_width if pa.types.is_integer(kind) or pa.types.is_date(kind) else TEXT_BYTES
