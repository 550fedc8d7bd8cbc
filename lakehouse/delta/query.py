"""Runs SQL over the tables without Spark: DuckDB reads them through the deltalake package."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError

from lakehouse.errors import LakehouseError
from lakehouse.settings import Settings

LAYERS = ("bronze", "silver", "gold", "quarantine", "quality")


def table_names(settings: Settings) -> Iterator[str]:
    """The names `layer.table` of all tables. Raises ConfigurationError if they are not on this machine."""
    for layer in LAYERS:
        root = Path(settings.local_path(layer))
        for path in sorted(root.iterdir()) if root.is_dir() else ():
            if DeltaTable.is_deltatable(str(path)):
                yield f"{layer}.{path.name}"


def existing_tables(settings: Settings) -> Iterator[tuple[str, DeltaTable]]:
    """The names and tables of all layers. Raises LakehouseError, which names the table, if one can't be read."""
    for name in table_names(settings):
        try:
            table = DeltaTable(settings.table_path(name))
        except (DeltaError, DeltaProtocolError) as error:
            raise LakehouseError(f"{name}: {error}") from error
        yield name, table


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
        connection.register(f"{layer}_{short}", table.to_pyarrow_dataset())
        connection.execute(f'CREATE VIEW {layer}."{short}" AS SELECT * FROM "{layer}_{short}"')
    try:
        result = connection.sql(sql, params=values or None)
        if result is not None:
            result = result.materialize()  # some errors only occur here
    except duckdb.Error as error:
        line = str(error).partition("\n")[0]
        if line.startswith("Catalog Error: Table"):
            there_is = f"has {', '.join(tables)}" if tables else "has no tables yet"
            line += (
                f" {settings.warehouse_root} {there_is}: "
                "`lakehouse run` creates the declared ones, `lakehouse refresh` those declared in SQL"
            )
        raise LakehouseError(line) from error
    return result if result is not None else connection.sql("SELECT 'done' AS result")
