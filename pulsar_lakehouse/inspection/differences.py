"""Says in which rows and values two tables differ, or two versions of one: by key, and without Spark."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.inspection.comparison import (
    EXAMPLES,
    ONLY_HERE,
    ONLY_THERE,
    Comparison,
    Difference,
    local_database,
    quoted,
)
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import columns_of, dataset_of, is_stored, stored_table

Path = tuple[str, ...]
"""The name of a column, and those of fields in it."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """A table, or a version of it."""

    table: str
    version: int | None = None

    @property
    def name(self) -> str:
        return self.table if self.version is None else f"{self.table}@{self.version}"


def compare_versions(settings: Settings, here: Side, there: Side, keys: Sequence[str]) -> Comparison:
    """Compare all rows of two tables, value by value, also those of the fields of structs.

    Raises ConfigurationError if one has no such key, and LakehouseError if a version can't be read, or if several rows
    have the same key.
    """
    tables = [_opened(settings, each) for each in (here, there)]
    kinds = [dict(_leaves(columns_of(table))) for table in tables]
    for side, found in zip((here, there), kinds, strict=True):
        if missing := [key for key in keys if (key,) not in found]:
            raise ConfigurationError(f"{side.name}: has no column {missing[0]} to compare by: name others with --by")
    both = {path: kind for path, kind in kinds[0].items() if kinds[1].get(path) == kind}
    compared = [path for path in both if path[0] not in keys]
    with local_database() as local:
        for name, table in zip(("here", "there"), tables, strict=True):
            local.register(name, dataset_of(table))
        counts = [_count(local, name, side, keys) for name, side in (("here", here), ("there", there))]
        local.execute(_pairs(keys, compared))
        found_only = [_rows(local, f"NOT {side}") for side in ("_there", "_here")]
        differ = _rows(local, "_here AND _there")
        return Comparison(
            version=tables[1].version(),
            columns=(*keys, *map(".".join, compared)),
            left_out={
                ONLY_HERE: tuple(".".join(path) for path in kinds[0] if path not in kinds[1]),
                ONLY_THERE: tuple(".".join(path) for path in kinds[1] if path not in kinds[0]),
                "of another type": tuple(".".join(path) for path in kinds[0] if path in kinds[1] and path not in both),
            },
            equal=counts[0] - found_only[0] - differ,
            differ=differ,
            only_here=found_only[0],
            only_there=found_only[1],
            differences=tuple(_differences(local, keys, compared)),
        )


def _opened(settings: Settings, side: Side) -> DeltaTable:
    if not is_stored(settings, side.table):
        raise LakehouseError(f"{side.table} is not there")
    try:
        return stored_table(settings, side.table, side.version)
    except DeltaError as error:
        raise LakehouseError(f"{side.name}: can't be read: {str(error).partition(chr(10))[0]}") from error


def _leaves(columns: pa.Schema | pa.StructType, within: Path = ()) -> Iterator[tuple[Path, pa.DataType]]:
    """The columns, and in their place the fields of those that are structs."""
    for field in columns:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, (*within, field.name))
        else:
            yield (*within, field.name), field.type


def _count(local: duckdb.DuckDBPyConnection, name: str, side: Side, keys: Sequence[str]) -> int:
    """How many rows there are. Raises LakehouseError if several have the same key."""
    by = ", ".join(map(quoted, keys))
    [(rows, different)] = local.execute(f"SELECT count(*), count(DISTINCT row({by})) FROM {name}").fetchall()
    if rows != different:
        raise LakehouseError(f"{side.name}: several rows have the same {', '.join(keys)}: name other columns with --by")
    return int(rows)


def _pairs(keys: Sequence[str], compared: Sequence[Path]) -> str:
    """Makes a table of the rows that are not equal: their keys, whether each side has them, and values as texts."""
    same = " AND ".join(f"h.{quoted(key)} IS NOT DISTINCT FROM t.{quoted(key)}" for key in keys)
    key = ", ".join(f"CAST(coalesce(h.{name}, t.{name}) AS VARCHAR) AS {name}" for name in map(quoted, keys))
    values = [(_of("h", path), _of("t", path)) for path in compared]
    differs = " OR ".join(("NOT _here", "NOT _there", *(f"{here} IS DISTINCT FROM {there}" for here, there in values)))
    texts = "".join(
        f", CAST({here} AS VARCHAR) AS _h{place}, CAST({there} AS VARCHAR) AS _t{place}, "
        f"{here} IS DISTINCT FROM {there} AS _d{place}"
        for place, (here, there) in enumerate(values)
    )
    sides = "h._is IS NOT NULL AS _here, t._is IS NOT NULL AS _there"
    return (
        f"CREATE TABLE pairs AS SELECT {key}, {sides}{texts} FROM (SELECT *, 1 AS _is FROM here) AS h "
        f"FULL JOIN (SELECT *, 1 AS _is FROM there) AS t ON {same} WHERE {differs}"
    )


def _of(side: str, path: Path) -> str:
    return ".".join((side, *map(quoted, path)))


def _rows(local: duckdb.DuckDBPyConnection, condition: str) -> int:
    [(count,)] = local.execute(f"SELECT count(*) FROM pairs WHERE {condition}").fetchall()
    return int(count)


def _differences(
    local: duckdb.DuckDBPyConnection, keys: Sequence[str], compared: Sequence[Path]
) -> Iterator[Difference]:
    found = [
        (".".join(path), f"_here AND _there AND _d{place}", f"_h{place}, _t{place}")
        for place, path in enumerate(compared)
    ]
    found += [(ONLY_HERE, "NOT _there", "'a row', 'no row'"), (ONLY_THERE, "NOT _here", "'no row', 'a row'")]
    by = ", ".join(map(quoted, keys))
    for what, condition, values in found:
        if rows := _rows(local, condition):
            few = f"SELECT {by}, {values} FROM pairs WHERE {condition} ORDER BY ALL LIMIT {EXAMPLES}"
            yield Difference(what=what, rows=rows, examples=tuple(local.execute(few).fetchall()))
