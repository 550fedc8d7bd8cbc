"""Which files of a table have one of some keys, when most keys are in no file.

A file of a table never changes. So a process that looks for keys again and again keeps the keys of each file in memory,
and reads only those of files that are new.
"""

from collections import OrderedDict
from functools import reduce
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_lakehouse.limits import KEPT_KEYS_BYTES, VERIFIED_BYTES
from pulsar_lakehouse.tables.checksums import verify
from pulsar_lakehouse.tables.stored import bytes_of, dataset_of

TEXT_BYTES = 40
"""The estimated size of a text that is not read yet."""
FILE_BYTES = 2048
"""What is kept of a file beside its keys."""


class KeptKeys:
    """The keys of files, in memory. Those that were used least recently make room for others."""

    def __init__(self, room: int = KEPT_KEYS_BYTES) -> None:
        self._room, self._bytes = room, 0
        self._kept: OrderedDict[tuple[str, ...], pa.Table] = OrderedDict()
        self._too_large: set[tuple[str, ...]] = set()
        self._lock = Lock()

    def files_with(self, table: DeltaTable, files: pa.Table, keys: pa.Table) -> pa.Table | None:
        """The `files` that have or may have one of the keys; None if those of all files would take too much memory."""
        names, rows = keys.column_names, files["num_records"]
        if not len(files):
            return files
        if rows.null_count or pc.sum(rows).as_py() * sum(map(_bytes_of, keys.schema.types)) > self._room:
            return None
        with self._lock:
            held = self._keys_of(table, files, names)
        if held is None:
            return None
        known = pa.concat_tables(held)
        is_one = (pc.is_in(known[name], value_set=keys[name].combine_chunks()) for name in names)
        found = np.flatnonzero(reduce(pc.and_, is_one))
        ends = np.cumsum([len(each) for each in held])
        return files.take(np.unique(np.searchsorted(ends, found, side="right")))

    def _keys_of(self, table: DeltaTable, files: pa.Table, names: list[str]) -> list[pa.Table] | None:
        """The keys of each file; None, from now on, if they are larger than was estimated."""
        of_table = (table.table_uri, *names)
        if of_table in self._too_large:
            return None
        paths = files["path"].to_pylist()
        new = files.filter(pa.array([(*of_table, path) not in self._kept for path in paths], pa.bool_()))
        read, room = {}, self._room
        if len(new):
            if bytes_of(new) <= VERIFIED_BYTES:
                verify(table, new)
            dataset = dataset_of(table, new)
            for path, fragment in zip(new["path"].to_pylist(), dataset.get_fragments(), strict=True):
                read[*of_table, path] = fragment.to_table(dataset.schema, columns=names)
                room -= read[*of_table, path].nbytes
                if room < 0:
                    self._too_large.add(of_table)
                    return None
        self._kept.update(read)
        self._bytes += sum(map(_size_of, read.values()))
        held = [self._kept[*of_table, path] for path in paths]
        for path in paths:
            self._kept.move_to_end((*of_table, path))
        while self._bytes > self._room:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size_of(dropped)
        return held


def _size_of(keys: pa.Table) -> int:
    return int(keys.nbytes) + FILE_BYTES


def _bytes_of(kind: pa.DataType) -> int:
    return kind.byte_width if pa.types.is_integer(kind) or pa.types.is_date(kind) else TEXT_BYTES
