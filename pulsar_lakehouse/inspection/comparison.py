"""Compares a table with one in Postgres of which it is a replica: row by row, by their keys, and without Spark.

Postgres sends its rows by a COPY, in no order. DuckDB keeps their keys and hashes, and joins them with those of the
table's rows. Where these are not equal, the rows themselves are read, on both sides, and compared value by value.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryDirectory
from time import monotonic

import duckdb
import psycopg
import pyarrow as pa
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.inspection.postgres_texts import JSON, MACROS, SESSION, Texts, same_json, texts_in, texts_of
from pulsar_lakehouse.postgres import postgres_transaction
from pulsar_lakehouse.progress import spinner, wait_until
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import columns_of, dataset_of, stored_table

EXAMPLES = 3
"""Rows that are shown of each difference."""
ASKED_KEYS = 10_000
"""Keys that Postgres is asked for, at most. For more, it sends all rows again."""
ONLY_HERE, ONLY_THERE = "only here", "only there"
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
    """The column, or `ONLY_HERE` or `ONLY_THERE`."""
    rows: int
    examples: tuple[tuple[str | None, ...], ...]
    """A few of them, by key: the values of the key, and those here and there."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    version: int
    """Of the table, at the last look."""
    columns: tuple[str, ...]
    """Those that were compared, first those of the key."""
    left_out: Mapping[str, tuple[str, ...]]
    """The others, by why they were not compared."""
    equal: int
    """Rows that are the same here and there."""
    differ: int
    """Rows that are here and there, and are not the same."""
    only_here: int
    only_there: int
    differences: tuple[Difference, ...]


def compare(settings: Settings, replica: Replica, *, wait: float = 0) -> Comparison:
    """Compare all rows. Those that differ are looked at again with each new version of the table, for `wait` seconds.

    Raises ConfigurationError if Postgres has no such key, and LakehouseError with Postgres's or DuckDB's reason, and if
    several rows have the same key.
    """
    end = monotonic() + wait
    with local_database() as local:
        pairs = _Pairs(settings, replica, local)
        with spinner(f"Comparing {replica.table} with {replica.original}"):
            keys = pairs.find()
            if pairs.count:
                pairs.look_again()
        while pairs.count and monotonic() < end:
            message = f"{pairs.count:,} rows differ: waiting for a new version of {replica.table}"
            if wait_until(pairs.is_outdated, message, end - monotonic()):
                pairs.look_again()
        found = {each.what: each for each in pairs.differences()}
        only_here, only_there = (found[side].rows if side in found else 0 for side in (ONLY_HERE, ONLY_THERE))
        return Comparison(
            version=pairs.version,
            columns=tuple(pairs.texts),
            left_out=pairs.left_out,
            equal=keys - pairs.count,
            differ=pairs.count - only_here - only_there,
            only_here=only_here,
            only_there=only_there,
            differences=tuple(found.values()),
        )


@contextmanager
def local_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that keeps on disk what does not fit into its memory."""
    with TemporaryDirectory(prefix="lakehouse-compare-") as folder, duckdb.connect() as connection:
        connection.execute(f"SET temp_directory = '{folder}'; SET memory_limit = '{MEMORY}'; SET TimeZone = 'UTC'")
        connection.execute(MACROS)
        connection.create_function("same_json", same_json, ["VARCHAR", "VARCHAR"], "BOOLEAN")
        try:
            yield connection
        except (duckdb.Error, pa.ArrowException) as error:
            raise LakehouseError(str(error).partition("\n")[0]) from error


class _Pairs:
    """Rows that are not equal, in DuckDB's table `pairs`: their key, `_here` and `_there`. NULL: there is no row.

    These are hashes of rows after `find`, and lists of their values as texts after `look_again`.
    """

    def __init__(self, settings: Settings, replica: Replica, local: duckdb.DuckDBPyConnection) -> None:
        self.settings, self.replica, self.local = settings, replica, local
        self.keys = ", ".join(map(quoted, replica.keys))
        self.types: dict[str, str] = {}
        """Of the columns in Postgres."""
        self.count = 0

    def find(self) -> int:
        """Find the rows that are not equal among all. Returns how many keys there are.

        Raises LakehouseError if several rows have the same key, or one has none.
        """
        self._join("hash", "_here IS DISTINCT FROM _there")
        replica, keys = self.replica, ", ".join(self.replica.keys)
        here, there = self._rows(f"stored WHERE {replica.where}"), self._rows("there")
        only_here, only_there = self._rows("pairs WHERE _there IS NULL"), self._rows("pairs WHERE _here IS NULL")
        if self._rows(f"there WHERE {' OR '.join(f'{quoted(key)} IS NULL' for key in replica.keys)}"):
            raise LakehouseError(f"{replica.original}: a row has no {keys}, by which rows are compared")
        if here - only_here != there - only_there:
            where = replica.table if here - only_here > there - only_there else replica.original
            raise LakehouseError(f"{where}: several rows have the same {keys}, by which rows are compared")
        return here + only_there

    def look_again(self) -> None:
        """Compare these rows as they are now, value by value."""
        differ = " OR ".join(self._differs(name) for name in self.texts)
        self._join(
            "list_value", f"_here IS NULL OR _there IS NULL OR {differ}", among=f"SEMI JOIN pairs USING ({self.keys})"
        )

    def is_outdated(self) -> bool:
        """Whether the table has a newer version than the one that was looked at."""
        self.table.update_incremental()
        return self.table.version() > self.version

    def differences(self) -> Iterator[Difference]:
        for name in self.texts if self.count else ():
            place = list(self.texts).index(name) + 1
            where = f"_here IS NOT NULL AND _there IS NOT NULL AND {self._differs(name)}"
            yield from self._difference(name, where, f"_here[{place}], _there[{place}]")
        yield from self._difference(ONLY_HERE, "_there IS NULL", "'a row', 'no row'")
        yield from self._difference(ONLY_THERE, "_here IS NULL", "'no row', 'a row'")

    def _difference(self, what: str, where: str, values: str) -> Iterator[Difference]:
        if rows := self._rows(f"pairs WHERE {where}"):
            few = f"SELECT {self.keys}, {values} FROM pairs WHERE {where} ORDER BY ALL LIMIT {EXAMPLES}"
            yield Difference(what=what, rows=rows, examples=tuple(self.local.execute(few).fetchall()))

    def _join(self, row: str, unequal: str, *, among: str = "") -> None:
        """Fill the table `pairs`. `row` is the function of DuckDB that makes one value of a row's values."""
        self.table = stored_table(self.settings, self.replica.table)  # first, so that Postgres is not behind it
        self.version = self.table.version()
        self.local.register("stored", dataset_of(self.table))
        needed = f"{self.replica.table} is compared with {self.replica.original} in Postgres"
        with postgres_transaction(self.settings, self.replica.original, needed=needed) as cursor:
            cursor.execute(SESSION)
            self.types = self.types or self._types(cursor)
            with cursor.copy(self._copy()) as copy, texts_in(copy, self.texts) as copied:
                self.local.register("copied", copied)
                there = self._select({name: each.there for name, each in self.texts.items()}, f"{row}({{}}) AS _there")
                self.local.execute(f"CREATE OR REPLACE TABLE there AS FROM ({there} FROM copied) {among}")
        here = self._select({name: each.here for name, each in self.texts.items()}, f"{row}({{}}) AS _here")
        self.local.execute(
            f"CREATE OR REPLACE TABLE pairs AS SELECT {self.keys}, _here, _there FROM "
            f"(FROM ({here} FROM stored WHERE {self.replica.where}) {among}) FULL JOIN there USING ({self.keys}) "
            f"WHERE {unequal}"
        )
        self.count = self._rows("pairs")

    def _select(self, sql: Mapping[str, str], row: str) -> str:
        """Selects the key and the row, by the SQL of the values."""
        texts = {name: each.format(quoted(name)) for name, each in sql.items()}
        key = ", ".join(f"{texts[name]} AS {quoted(name)}" for name in self.replica.keys)
        return f"SELECT {key}, {row.format(', '.join(texts.values()))}"

    def _differs(self, name: str) -> str:
        here, there = (f"{row}[{list(self.texts).index(name) + 1}]" for row in ("_here", "_there"))
        differs = f"{here} IS DISTINCT FROM {there}"
        same = f"coalesce(same_json({here}, {there}), false)"
        return f"CASE WHEN {differs} THEN NOT {same} ELSE false END" if self.types[name] in JSON else differs

    def _rows(self, of: str) -> int:
        [(count,)] = self.local.execute(f"SELECT count(*) FROM {of}").fetchall()
        return int(count)

    @cached_property
    def kinds(self) -> dict[str, pa.DataType]:
        """The types of the columns here that may be compared; those of the key come first."""
        kinds = {each.name: each.type for each in columns_of(self.table)}
        return {name: kinds[name] for name in (*self.replica.keys, *(self.replica.columns or kinds)) if name in kinds}

    @cached_property
    def texts(self) -> dict[str, Texts]:
        both = {name: texts_of(kind, self.types[name]) for name, kind in self.kinds.items() if name in self.types}
        return {name: texts for name, texts in both.items() if texts}

    @property
    def left_out(self) -> dict[str, tuple[str, ...]]:
        return {
            ONLY_HERE: tuple(name for name in self.kinds if name not in self.types),
            ONLY_THERE: tuple(name for name in self.types if name not in self.kinds),
            "not comparable": tuple(name for name in self.kinds if name in self.types and name not in self.texts),
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
                    f"{self.replica.original}: has no column {key}, the key of {self.replica.table}: "
                    f"give a SELECT that has, such as (SELECT number AS {key}, name FROM customers)"
                )
        return types

    @property
    def _original(self) -> Composable:
        name = self.replica.original
        return SQL(name) if name.startswith("(") else Identifier(*name.split("."))

    def _copy(self) -> Composed:
        """Asks for all rows or, if few are not equal, for these."""
        columns = [SQL(each.asked).format(Identifier("compared", name)) for name, each in self.texts.items()]
        named = [SQL("{} AS {}").format(each, Identifier(name)) for each, name in zip(columns, self.texts, strict=True)]
        is_asked = self._is_asked() if 0 < self.count <= ASKED_KEYS else SQL("true")
        copy = SQL("COPY (SELECT {} FROM {} AS compared WHERE {}) TO STDOUT (FORMAT csv, HEADER)")
        return copy.format(SQL(", ").join(named), self._original, is_asked)

    def _is_asked(self) -> Composed:
        keys = {key: Identifier(f"key{place}") for place, key in enumerate(self.replica.keys)}
        rows = self.local.execute(f"SELECT {self.keys} FROM pairs").fetchall()
        parts = (
            [Identifier("compared", key) for key in keys],
            [SQL(f"{{}}::{self.types[key]}").format(name) for key, name in keys.items()],
            [SQL("{}::text[]").format(Literal(list(column))) for column in zip(*rows, strict=True)],
            keys.values(),
        )
        asked = SQL("({}) IN (SELECT {} FROM unnest({}) AS asked ({}))")
        return asked.format(*(SQL(", ").join(part) for part in parts))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
