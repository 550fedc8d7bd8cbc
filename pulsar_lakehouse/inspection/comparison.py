"""Compares a table with one in Postgres of which it is a replica: row by row, by their keys, and without Spark.

Postgres sends its rows by a COPY, in no order. DuckDB keeps their keys and hashes, and joins them with those of the
table's rows. Where these are not equal, the rows themselves are read, on both sides, and compared value by value.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from psycopg.sql import SQL, Composed, Identifier, Literal
from pyarrow import csv

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.inspection.postgres_texts import JSON, MACROS, SESSION, Texts, texts_of
from pulsar_lakehouse.limits import MIB
from pulsar_lakehouse.postgres import postgres_transaction
from pulsar_lakehouse.progress import spinner, wait_until
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import columns_of, dataset_of, stored_table

EXAMPLES = 3
"""Rows that are shown of each difference."""
ASKED_KEYS = 10_000
"""Keys that Postgres is asked for, at most. For more, it sends all rows again."""
LONGEST_ROW = 32 * MIB
"""Bytes of a row of Postgres, as CSV."""
BOTH, ONLY_HERE, ONLY_THERE = "h0 IS NOT NULL AND t0 IS NOT NULL", "t0 IS NULL", "h0 IS NULL"
MEMORY = "1GB"
"""What DuckDB takes. It keeps more on disk."""


@dataclass(frozen=True, kw_only=True)
class Replica:
    """A table of the lake, and the one in Postgres that its rows are from."""

    table: str
    keys: tuple[str, ...]
    columns: tuple[str, ...] = ()
    """Those that may be compared; by default all."""
    where: str = "true"
    """Which rows are there, in DuckDB's SQL."""
    original: str
    """A table in Postgres, such as `public.customers`, or a SELECT in parentheses."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Rows that have other values in a column, or that one side lacks."""

    what: str
    """The column, or `only here` or `only there`."""
    rows: int
    examples: tuple[tuple[str | None, ...], ...]
    """A few of them, by key: the values of the key, and those here and there."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    version: int
    """Of the table, at the last look."""
    columns: tuple[str, ...]
    """Those that were compared."""
    left_out: dict[str, tuple[str, ...]]
    """The others, by why they were not compared."""
    equal: int
    """Rows that are the same here and there."""
    differ: int
    """Rows that are here and there, and are not the same."""
    only_here: int
    only_there: int
    differences: tuple[Difference, ...]


def compare(settings: Settings, replica: Replica, *, wait: float = 0) -> Comparison:
    """Compare all rows. Those that differ are looked at again for `wait` seconds, with each new version of the table.

    Needs room for the rows in the folder of temporary files. Raises ConfigurationError if Postgres has no such key, and
    LakehouseError with Postgres's or DuckDB's reason, and if keys are not unique.
    """
    end = monotonic() + wait
    with _duckdb() as local:
        pairs = _Pairs(settings, replica, local)
        with spinner(f"Comparing {replica.table} with {replica.original}"):
            pairs.find()
            if pairs.unequal:
                pairs.look()
        while pairs.unequal and monotonic() < end and wait_until(pairs.is_renewed, _awaited(pairs), end - monotonic()):
            pairs.look()
        return pairs.result()


def _awaited(pairs: "_Pairs") -> str:
    return f"{pairs.unequal:,} rows differ: waiting for a new version of {pairs.replica.table}"


@contextmanager
def _duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    with TemporaryDirectory(prefix="lakehouse-compare-") as folder, duckdb.connect() as connection:
        connection.execute(
            f"SET temp_directory = '{folder}'; SET memory_limit = '{MEMORY}'; SET TimeZone = 'UTC'; {MACROS}"
        )
        connection.create_function("same_json", _same_json, ["VARCHAR", "VARCHAR"], "BOOLEAN")
        try:
            yield connection
        except (duckdb.Error, pa.ArrowException) as error:
            raise LakehouseError(f"{str(error).partition(chr(10))[0]}") from error


def _same_json(one: str, other: str) -> bool:
    def value(text: str) -> Any:
        return json.loads(
            text, parse_int=lambda digits: (Decimal(digits),), parse_float=lambda digits: (Decimal(digits),)
        )

    try:
        return bool(value(one) == value(other))
    except (ValueError, RecursionError):
        return False


class _Pairs:
    """Rows with the same key that are not equal, in DuckDB's table `pairs`: `h0`, `h1`, … here and `t0`, … there.

    The columns of the key are the first ones. The table `asked` has the keys, as `k0`, ….
    """

    def __init__(self, settings: Settings, replica: Replica, local: duckdb.DuckDBPyConnection) -> None:
        self.settings, self.replica, self.local = settings, replica, local
        self.types: dict[str, str] = {}
        """Of the columns in Postgres."""
        self.keys = 0
        """How many there are, here and there."""
        self.unequal = 0

    def find(self) -> None:
        """Find the keys of the rows that are not equal, by hashes of all rows."""
        keys = {side: ", ".join(f"{side}{n}" for n, _ in enumerate(self.replica.keys)) for side in "ht"}
        with self._rows():
            texts = ", ".join(f"t{n}" for n, _ in enumerate(self.texts))
            self.local.execute(f"CREATE TABLE there AS SELECT {keys['t']}, hash({texts}) AS t FROM ({self._there})")
        texts = ", ".join(f"h{n}" for n, _ in enumerate(self.texts))
        here = f"SELECT {keys['h']}, hash({texts}) AS h FROM ({self._here})"
        self.local.execute(
            f"CREATE TABLE asked AS SELECT {self._key}, t IS NULL AS only_here, h IS NULL AS only_there "
            f"FROM ({here}) FULL JOIN there ON {self._same('h{0} = t{0}')} WHERE h IS DISTINCT FROM t"
        )
        self.unequal = self._count("asked")
        self.keys = self._count_keys()

    def look(self) -> None:
        """Compare the rows that were not equal, as they are now."""
        with self._rows():
            rows = f"FROM ({self._there}) SEMI JOIN asked ON {self._same('t{0} = k{0}')}"
            self.local.execute(f"CREATE OR REPLACE TABLE there AS {rows}")
        here = f"FROM ({self._here}) SEMI JOIN asked ON {self._same('h{0} = k{0}')}"
        unequal = " OR ".join((ONLY_HERE, ONLY_THERE, *(self._differs(name) for name in self.texts)))
        self.local.execute(
            f"CREATE OR REPLACE TABLE pairs AS FROM ({here}) FULL JOIN there ON {self._same('h{0} = t{0}')} "
            f"WHERE {unequal}"
        )
        self.local.execute(f"CREATE OR REPLACE TABLE asked AS SELECT {self._key} FROM pairs")
        self.unequal = self._count("asked")

    def is_renewed(self) -> bool:
        """Whether the table has a newer version than the one that was looked at."""
        return stored_table(self.settings, self.replica.table).version() > self.table.version()

    @contextmanager
    def _rows(self) -> Iterator[None]:
        """While Postgres sends its rows: DuckDB has them as `copied`, and those of the table as `stored`."""
        self.table = stored_table(self.settings, self.replica.table)  # first, so that Postgres is not behind it
        self.local.register("stored", dataset_of(self.table))
        needed = f"{self.replica.table} is compared with {self.replica.original} in Postgres"
        with postgres_transaction(self.settings, self.replica.original, needed=needed) as cursor:
            cursor.execute(SESSION)
            self.types = self.types or self._types(cursor)
            with cursor.copy(self._copy()) as copy:
                self.local.register("copied", _arrow(copy, self.texts))
                yield

    @cached_property
    def texts(self) -> dict[str, Texts]:
        """How each column that is compared becomes text; those of the key come first."""
        kinds = {each.name: each.type for each in columns_of(self.table)}
        may_be = dict.fromkeys((*self.replica.keys, *(self.replica.columns or kinds)))
        found = {
            name: texts_of(kinds[name], self.types[name]) for name in may_be if name in kinds and name in self.types
        }
        return {name: texts for name, texts in found.items() if texts}

    @cached_property
    def left_out(self) -> dict[str, tuple[str, ...]]:
        kinds = columns_of(self.table).names
        here = [name for name in self.replica.columns or kinds if name not in self.texts]
        return {
            "only here": tuple(name for name in here if name not in self.types),
            "only there": tuple(name for name in self.types if name not in self.texts and name not in here),
            "not comparable": tuple(name for name in here if name in self.types),
        }

    def _types(self, cursor: psycopg.Cursor) -> dict[str, str]:
        """The columns in Postgres and their types. Raises ConfigurationError if one of the key is not among them."""
        cursor.execute(SQL("SELECT * FROM {} AS compared LIMIT 0").format(self._original))
        columns = cursor.description or []
        cursor.execute("SELECT unnest(%s::oid[])::regtype::text", ([column.type_code for column in columns],))
        types = {column.name: kind for column, (kind,) in zip(columns, cursor.fetchall(), strict=True)}
        for key in self.replica.keys:
            if key not in types:
                raise ConfigurationError(
                    f"{self.replica.original}: has no column {key}, the key of {self.replica.table}: give a SELECT "
                    f'that has one, such as "(SELECT number AS {key}, * FROM {self.replica.original})"'
                )
        return types

    @property
    def _original(self) -> Composed:
        name = self.replica.original
        return Composed([SQL(name) if name.startswith("(") else Identifier(*name.split("."))])

    def _copy(self) -> Composed:
        columns = SQL(", ").join(
            SQL(texts.asked).format(Identifier("compared", name)) + SQL(" AS {}").format(Identifier(name))
            for name, texts in self.texts.items()
        )
        copy = "COPY (SELECT {} FROM {} AS compared WHERE {}) TO STDOUT (FORMAT csv, HEADER)"
        return SQL(copy).format(columns, self._original, self._asked_keys())

    def _asked_keys(self) -> Composed:
        if not 0 < self.unequal <= ASKED_KEYS:
            return Composed([SQL("true")])
        keys = self.replica.keys
        rows = self.local.execute(f"SELECT {', '.join(f'k{n}' for n, _ in enumerate(keys))} FROM asked").fetchall()
        names = [Identifier(f"key{n}") for n, _ in enumerate(keys)]
        casts = [SQL(f"{{}}::{self.types[key]}").format(name) for key, name in zip(keys, names, strict=True)]
        values = [SQL("{}::text[]").format(Literal(list(column))) for column in zip(*rows, strict=True)]
        columns = [Identifier("compared", key) for key in keys]
        parts = (SQL(", ").join(each) for each in (columns, casts, values, names))
        return SQL("({}) IN (SELECT {} FROM unnest({}) AS asked ({}))").format(*parts)

    @property
    def _here(self) -> str:
        texts = (f"{texts.here.format(_name(name))} AS h{n}" for n, (name, texts) in enumerate(self.texts.items()))
        return f"SELECT {', '.join(texts)} FROM stored WHERE {self.replica.where}"

    @property
    def _there(self) -> str:
        texts = (f"{texts.there.format(_name(name))} AS t{n}" for n, (name, texts) in enumerate(self.texts.items()))
        return f"SELECT {', '.join(texts)} FROM copied"

    def _count_keys(self) -> int:
        """How many keys there are here and there. Raises LakehouseError if several rows have the same, or one none."""
        here, there = self._count(f"stored WHERE {self.replica.where}"), self._count("there")
        only_here, only_there = self._count("asked WHERE only_here"), self._count("asked WHERE only_there")
        keyless = self._count(f"there WHERE NOT ({self._same('t{0} IS NOT NULL')})")
        if keyless or here - only_here != there - only_there:
            where = self.replica.original if keyless or here - only_here < there - only_there else self.replica.table
            what = "rows have no" if keyless else "several rows have the same"
            raise LakehouseError(
                f"{where}: {what} {', '.join(self.replica.keys)}: give a SELECT that has one row a key"
            )
        return here + only_there

    def _count(self, rows: str) -> int:
        [(count,)] = self.local.execute(f"SELECT count(*) FROM {rows}").fetchall()
        return int(count)

    def result(self) -> Comparison:
        values = {name: (f"{BOTH} AND {self._differs(name)}", f"h{n}, t{n}") for n, name in enumerate(self.texts)}
        kinds = {
            **values,
            "only here": (ONLY_HERE, "'a row', 'no row'"),
            "only there": (ONLY_THERE, "'no row', 'a row'"),
        }
        found = [self._difference(what, *kind) for what, kind in kinds.items()] if self.unequal else []
        rows = {each.what: each.rows for each in found}
        only_here, only_there = rows.get("only here", 0), rows.get("only there", 0)
        return Comparison(
            version=self.table.version(),
            columns=tuple(self.texts),
            left_out=self.left_out,
            equal=self.keys - self.unequal,
            differ=self.unequal - only_here - only_there,
            only_here=only_here,
            only_there=only_there,
            differences=tuple(each for each in found if each.rows),
        )

    def _difference(self, what: str, where: str, values: str) -> Difference:
        rows = f"pairs WHERE {where}"
        examples = self.local.execute(
            f"SELECT {self._key}, {values} FROM {rows} ORDER BY ALL LIMIT {EXAMPLES}"
        ).fetchall()
        return Difference(what=what, rows=self._count(rows), examples=tuple(examples))

    @property
    def _key(self) -> str:
        return ", ".join(f"coalesce(h{n}, t{n}) AS k{n}" for n, _ in enumerate(self.replica.keys))

    def _same(self, condition: str) -> str:
        """A condition for each column of the key, of which `{0}` is the number."""
        return " AND ".join(condition.format(n) for n, _ in enumerate(self.replica.keys))

    def _differs(self, name: str) -> str:
        here, there = (f"{side}{list(self.texts).index(name)}" for side in "ht")
        if self.types[name] in JSON:
            same = f"coalesce(same_json({here}, {there}), false)"
            return f"CASE WHEN {here} IS NOT DISTINCT FROM {there} THEN false ELSE NOT {same} END"
        return f"{here} IS DISTINCT FROM {there}"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _arrow(copy: psycopg.Copy, columns: Iterable[str]) -> csv.CSVStreamingReader:
    """The rows that Postgres sends, as texts."""
    return csv.open_csv(
        pa.PythonFile(_Csv(copy), mode="r"),
        read_options=csv.ReadOptions(block_size=LONGEST_ROW),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )


class _Csv:
    """What Postgres sends, as a file for Arrow."""

    closed = False

    def __init__(self, copy: psycopg.Copy) -> None:
        self.copy, self.held = copy, bytearray()

    def read(self, size: int) -> bytes:
        while len(self.held) < size and (row := self.copy.read()):
            self.held += row
        given = bytes(self.held[:size])
        del self.held[:size]
        return given
