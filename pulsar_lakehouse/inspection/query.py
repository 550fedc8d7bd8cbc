"""Runs SQL over the tables without Spark: DuckDB reads them through the deltalake package."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

import duckdb

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import LAYERS, dataset_of, existing_tables


def query(settings: Settings, sql: str, values: Mapping[str, object] | None = None) -> duckdb.DuckDBPyRelation:
    """Run one statement over the current tables. `values` are its parameters, which it names as `$name`.

    Raises LakehouseError with DuckDB's reason if the statement fails.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for layer in LAYERS:
        connection.execute(f"CREATE SCHEMA {layer}")
    tables = dict(existing_tables(settings))
    for name, table in tables.items():
        layer, _, short = name.partition(".")
        connection.register(f"{layer}_{short}", dataset_of(table))
        connection.execute(f'CREATE VIEW {layer}."{short}" AS SELECT * FROM "{layer}_{short}"')
    try:
        result = connection.sql(sql, params=values or None)
        if result is not None:
            result = result.materialize()  # some errors only occur here
    except duckdb.Error as error:
        line = str(error).partition("\n")[0]
        if line.startswith("Catalog Error: Table"):
            line += _hint(settings, line, tables)
        raise LakehouseError(line) from error
    return result if result is not None else connection.sql("SELECT 'done' AS result")


def _hint(settings: Settings, line: str, tables: Iterable[str]) -> str:
    """What to do about DuckDB's line on a table that is not there."""
    short = {name: name.partition(".")[2] for name in tables}
    missing = re.search("with name (\\S+)", line)
    alike = get_close_matches(missing[1], set(short.values())) if missing else []
    if alike:
        return f" There is {' and '.join(name for name in short if short[name] in alike)}"
    where = f"{settings.warehouse_root} has {'other tables' if short else 'no tables yet'}"
    made = "`lakehouse run` creates the declared ones, `lakehouse refresh` those declared in SQL"
    return f" {where}: {made}" + ("; `lakehouse status` lists those that are there" if short else "")
