"""Flips bits in the files of a table, and compares the rows that each reader then returns with those that are there.

A reader is asked for all rows, and for those within a range of ids, which it may look for by statistics.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from operator import itemgetter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.query import QueryBuilder
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.protocol.TProtocol import TType
from thrift.transport.TTransport import TMemoryBuffer

from pulsar_lakehouse.inspection.file_checks import check_table
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.power_cuts import remove_torn_commits
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables import checksums
from pulsar_lakehouse.tables.checksums import verify
from pulsar_lakehouse.tables.direct import append_arrow, write_checksums
from pulsar_lakehouse.tables.stored import files_of, stored_table

NAMES = {"Spark": "silver.of_spark", "delta-rs": "silver.of_delta_rs"}
"""The table that each writer has written."""
ROWS = pa.table(
    {
        "id": pa.array(range(2000), pa.int64()),
        "name": [None if id % 9 == 4 else f"name {id * 7919 % 1009}" for id in range(2000)],
        "price": [id * 0.37 for id in range(2000)],
        "place": [{"partition": id % 3, "entry": id} for id in range(2000)],
    }
)
WITHIN = "id BETWEEN 700 AND 900"
Rows = list[tuple[object, ...]]
Reader = Callable[[Settings, str], Rows]


class Outcome(StrEnum):
    UNCHANGED = "unchanged"
    NOTICED = "noticed"
    SILENT = "wrong rows"


@dataclass(frozen=True, kw_only=True)
class Flip:
    region: str
    file: Path
    bit: int

    @contextmanager
    def made(self) -> Iterator[None]:
        """Within the block, the bit is another one."""
        content = self.file.read_bytes()
        flipped = bytearray(content)
        flipped[self.bit // 8] ^= 1 << self.bit % 8
        self.file.write_bytes(flipped)
        checksums._is_as_written.cache_clear()  # the clock of files is not fine enough to see each flip
        try:
            yield
        finally:
            self.file.write_bytes(content)
            checksums._is_as_written.cache_clear()


def drawn(settings: Settings, name: str, draw: random.Random) -> Iterator[Flip]:
    """Flips in a table, of each region in turn."""
    path = Path(settings.table_path(name))
    file = path / max(files_of(stored_table(settings, name)).to_pylist(), key=itemgetter("num_records"))["path"]
    commits = [(commit, range(commit.stat().st_size)) for commit in sorted(path.glob("_delta_log/*.json"))]
    places = {region: [(file, each) for each in ranges] for region, ranges in regions(file).items()}
    places |= {"commits": commits}
    places |= {"checkpoint": [(each, range(each.stat().st_size)) for each in path.glob("_delta_log/*.parquet")]}
    while True:
        for region, of_region in places.items():
            if of_region:
                (chosen,) = draw.choices(of_region, [len(each) for _, each in of_region])
                byte = draw.choice(chosen[1])
                yield Flip(region=region, file=chosen[0], bit=byte * 8 + draw.randrange(8))


def regions(file: Path) -> Mapping[str, list[range]]:
    """The bytes of a Parquet file, by what they are."""
    content, metadata = file.read_bytes(), pq.read_metadata(file)
    headers, pages, dictionaries = list[range](), list[range](), list[range]()
    end = 4
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            at = column.dictionary_page_offset or column.data_page_offset
            end = at + column.total_compressed_size
            while at < end:
                kind, size, length = _page(content[at:end])
                headers.append(range(at, at + length))
                (dictionaries if kind == 2 else pages).append(range(at + length, at + length + size))
                at += length + size
    return {
        "data pages": pages,
        "dictionaries": dictionaries,
        "page headers": headers,
        "footer": [range(end, len(content))],
    }


def _page(content: bytes) -> tuple[int, int, int]:
    """The type of the page that begins here, its size, and the length of its header."""
    buffer = TMemoryBuffer(content)
    read, fields = TCompactProtocol(buffer), dict[int, int]()
    _struct(read, fields)
    return fields[1], fields[3], buffer._buffer.tell()


def _struct(read: TCompactProtocol, fields: dict[int, int]) -> None:
    read.readStructBegin()
    while (field := read.readFieldBegin())[1] != TType.STOP:
        match field[1]:
            case TType.I32:
                fields[field[2]] = read.readI32()
            case TType.STRING:
                read.readBinary()
            case TType.STRUCT:
                _struct(read, {})
            case other:
                read.skip(other)
        read.readFieldEnd()
    read.readStructEnd()


def outcome_of(read: Reader, settings: Settings, name: str, truth: Rows) -> Outcome:
    try:
        found = read(settings, name)
    except BaseException as error:  # delta-rs panics, which Python has as a BaseException
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return Outcome.NOTICED
    return Outcome.UNCHANGED if found == truth else Outcome.SILENT


def by_duckdb(settings: Settings, name: str) -> Rows:
    """What `lakehouse sql` does."""
    everything = query(settings, f"SELECT * FROM {name} ORDER BY ALL").fetchall()
    return [*everything, *query(settings, f"SELECT * FROM {name} WHERE {WITHIN} ORDER BY ALL").fetchall()]


def by_duckdb_before(settings: Settings, name: str) -> Rows:
    """The same without checksums."""
    held = DeltaTable(settings.table_path(name)).to_pyarrow_dataset()
    everything = duckdb.from_arrow(held).order("ALL").fetchall()
    return [*everything, *duckdb.from_arrow(held).filter(WITHIN).order("ALL").fetchall()]


def by_delta_rs(settings: Settings, name: str) -> Rows:
    """What a merge without Spark reads."""
    table = stored_table(settings, name)
    verify(table, files_of(table))
    return by_delta_rs_before(settings, name)


def by_delta_rs_before(settings: Settings, name: str) -> Rows:
    table = QueryBuilder().register("t", stored_table(settings, name))
    found = [pa.table(table.execute(f"SELECT * FROM t {end}").read_all()) for end in ("", f"WHERE {WITHIN}")]
    return [row for each in found for row in sorted(map(tuple, (row.values() for row in each.to_pylist())), key=repr)]


def by_check(settings: Settings, name: str) -> Rows:
    """`lakehouse check`, which returns no rows."""
    if check_table(settings, name).faults:
        raise ValueError
    return []


def write(settings: Settings, name: str) -> None:
    """Make a table by delta-rs, with a log checkpoint and a commit after it."""
    remove_torn_commits(settings)  # nothing was torn: checksums stay
    write_checksums(DeltaTable.create(settings.table_path(name), ROWS.schema))
    append_arrow(settings, name, ROWS)
    table = stored_table(settings, name)
    table.create_checkpoint()
    write_checksums(table)
    append_arrow(settings, name, ROWS.slice(0, 1))
