"""Runs SQL over the tables without Spark: DuckDB reads them through the deltalake package."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from threading import Timer

import duckdb
from deltalake import DeltaTable

from pulsar_lakehouse.access import ITSELF, Reader
from pulsar_lakehouse.damage import QUOTED, DamagedError
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import LAYERS, dataset_of, existing_tables, table_names

MOST_SECONDS = 10.0
"""For so long, a statement behind the fence may run."""
MOST_RESULTS = 1_000
"""So many rows of its result are returned."""
MOST_LOOKS_SECONDS = 5.0
"""For so long, a statement looks for a moment in which none of its tables changes."""
FENCE = {
    "enable_external_access": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "'1GB'",
    "lock_configuration": "true",
}
"""Settings of DuckDB with which a statement reaches neither files, nor the network, nor variables of this process."""


@dataclass(frozen=True, kw_only=True)
class Found:
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    is_cut: bool
    """Whether there are more rows."""


def query(
    settings: Settings, sql: str, values: Mapping[str, object] | None = None, *, reader: Reader = ITSELF
) -> duckdb.DuckDBPyRelation:
    """Run one statement over the current tables. `values` are its parameters, which it names as `$name`.

    `reader` is who sees the rows, by default the pipeline itself. Raises LakehouseError with DuckDB's reason if the
    statement fails.
    """
    connection = _connect(settings, sql, reader)
    with _told(settings, reader):
        result = connection.sql(sql, params=values or None)
        if result is not None:
            result = result.materialize()  # some errors only occur here
    return result if result is not None else connection.sql("SELECT 'done' AS result")


def query_fenced(
    settings: Settings, sql: str, reader: Reader, *, seconds: float = MOST_SECONDS, most: int = MOST_RESULTS
) -> Found:
    """Run one SELECT of a reader of tables, who may read nothing else of this machine.

    Raises LakehouseError if it is none, takes longer than `seconds`, or fails.
    """
    with _told(settings, reader), closing(fenced(settings, sql, reader)) as connection:
        return run_fenced(connection, sql, seconds=seconds, most=most)


def fenced(settings: Settings, sql: str, reader: Reader) -> duckdb.DuckDBPyConnection:
    """The reader's tables that SQL names, or else all of them, and nothing else."""
    connection = _connect(settings, sql, reader)
    for name, value in FENCE.items():
        connection.execute(f"SET {name} = {value}")
    return connection


def run_fenced(
    connection: duckdb.DuckDBPyConnection, sql: str, *, seconds: float = MOST_SECONDS, most: int = MOST_RESULTS
) -> Found:
    """Run one SELECT. Raises LakehouseError if it is none or takes longer than `seconds`, and duckdb.Error."""
    if [each.type for each in connection.extract_statements(sql)] != [duckdb.StatementType.SELECT]:
        raise LakehouseError("only one statement is run, and only one that reads, such as SELECT")
    timer = Timer(seconds, connection.interrupt)
    try:
        timer.start()
        result = connection.sql(sql)
        rows = result.limit(most + 1).fetchall()
    except duckdb.InterruptException as error:
        raise LakehouseError(f"it was stopped after {seconds:g} s: read less, or use `lakehouse sql`") from error
    finally:
        timer.cancel()
    return Found(columns=result.columns, rows=rows[:most], is_cut=len(rows) > most)


def _connect(settings: Settings, sql: str, reader: Reader) -> duckdb.DuckDBPyConnection:
    """A database in memory with the reader's tables whose names are in the SQL, or else with all of them."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for layer in LAYERS:
        connection.execute(f"CREATE SCHEMA {layer}")
    text = sql.casefold()

    def is_named(name: str) -> bool:
        return reader.may_read(name) and name.partition(".")[2].casefold().replace('"', '""') in text

    names = [*table_names(settings, is_named)] or [*table_names(settings, reader.may_read)]
    for name, table in at_one_moment(dict(existing_tables(settings, names))).items():
        layer, _, short = name.partition(".")
        connection.register(f"{layer}_{short}", dataset_of(table, masked=reader.masked(name)))
        connection.execute(f'CREATE VIEW {layer}."{short}" AS SELECT * FROM "{layer}_{short}"')
    return connection


def at_one_moment(tables: dict[str, DeltaTable]) -> dict[str, DeltaTable]:
    """The tables, each in the version of one same moment: what moves from one to another is never in none of them.

    Between two looks that find equal versions, there was such a moment. It is not waited for longer than some seconds.
    """
    until, before = time.monotonic() + MOST_LOOKS_SECONDS, dict[str, int]()
    while len(tables) > 1 and before != (now := {name: table.version() for name, table in tables.items()}):
        if before and time.monotonic() > until:
            break
        before = now
        for table in tables.values():
            table.update_incremental()
    return tables


@contextmanager
def _told(settings: Settings, reader: Reader) -> Iterator[None]:
    """Raises DuckDB's errors as LakehouseError."""
    try:
        yield
    except duckdb.Error as error:
        if found := QUOTED.search(str(error)):
            raise DamagedError(found[0]) from error
        line = str(error).partition("\n")[0]
        if line.startswith("Catalog Error: Table"):
            line += _hint(settings, reader, line)
        raise LakehouseError(line) from error


def _hint(settings: Settings, reader: Reader, line: str) -> str:
    """What to do about DuckDB's line on a table that is not there."""
    short = {name: name.partition(".")[2] for name in table_names(settings, reader.may_read)}
    missing = re.search("with name (\\S+)", line)
    alike = get_close_matches(missing[1], set(short.values())) if missing else []
    if alike:
        return f" There is {' and '.join(name for name in short if short[name] in alike)}"
    where = f"{settings.warehouse_root} has {'other tables' if short else 'no tables yet'}"
    made = "`lakehouse run` creates the declared ones, `lakehouse refresh` those declared in SQL"
    return f" {where}: {made}" + ("; `lakehouse status` lists those that are there" if short else "")
