"""Keep a table in Postgres equal to a declared gold table, and apply each change once.

One transaction writes both the changes since the last one and the gold version that they reach. So after a crash,
either both are in Postgres or neither.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import psycopg
from psycopg.sql import SQL, Composed, Identifier
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.types import POSTGRES_TYPES
from pulsar_lakehouse.postgres import postgres_transaction
from pulsar_lakehouse.tables.declared import FEED
from pulsar_lakehouse.tables.lake import Lake

DELETED = "_deleted"
NUL_IN_JSON = r"(?<!\\)((?:\\\\)*)\\u0000"
"""An escaped NUL in JSON text: `u0000` after a backslash that is not itself escaped."""


def publish_to_postgres(lake: Lake, table: SqlTable) -> int:
    """Update the table in Postgres, and return how many rows changed there.

    Writes all rows the first time, if gold's table was recreated, or if the last publication is older than the change
    feed reaches. Raises ConfigurationError if the URL is missing or invalid, and LakehouseError with Postgres's reason,
    or if the target table exists but was not created by a publication.
    """
    needed = f"{table.at}: publishes to Postgres"
    with postgres_transaction(lake.settings, str(table.postgres), needed=needed) as cursor:
        return _bring_over(lake, table, cursor)


def _bring_over(lake: Lake, table: SqlTable, cursor: psycopg.Cursor) -> int:
    gold = lake.table(table.name)
    id, version = gold.id, gold.version
    rows, last = gold.read(version), _last_published(cursor, table)
    if last is not None and last[:2] == (id, version):
        return 0
    _create(cursor, table, rows.schema, exists=last is not None)
    if last is None or last[0] != id or datetime.now(UTC) - last[2] > FEED:
        cursor.execute(SQL("DELETE FROM {}").format(_target(table)))
        changes = rows.withColumn(DELETED, F.lit(False))
    else:
        changes = _last_changes(gold.changes(last[1] + 1, version), table)
    changed = _apply(cursor, table, changes)
    cursor.execute(
        "INSERT INTO lakehouse_published VALUES (%s, %s, %s, now()) "
        "ON CONFLICT (target) DO UPDATE SET table_id = EXCLUDED.table_id, version = EXCLUDED.version, at = EXCLUDED.at",
        (table.postgres, id, version),
    )
    return changed


def _last_published(cursor: psycopg.Cursor, table: SqlTable) -> tuple[str, int, datetime] | None:
    """The id and version of the gold table that was published last, and when; None if none was.

    Takes a lock: other publications to the same target wait until this transaction ends.
    """
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('lakehouse_published'))")
    cursor.execute(
        "CREATE TABLE IF NOT EXISTS lakehouse_published "
        "(target text PRIMARY KEY, table_id text, version bigint, at timestamptz)"
    )
    cursor.connection.commit()
    cursor.execute("SET LOCAL TIME ZONE 'UTC'")
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('lakehouse_published'), hashtext(%s))", (table.postgres,))
    cursor.execute("SELECT table_id, version, at FROM lakehouse_published WHERE target = %s", (table.postgres,))
    last: tuple[str, int, datetime] | None = cursor.fetchone()
    return last


def _create(cursor: psycopg.Cursor, table: SqlTable, columns: StructType, *, exists: bool) -> None:
    """Create the target table if it does not exist, or else add the columns that it lacks."""
    types = {column.name: SQL(POSTGRES_TYPES[type(column.dataType)]) for column in columns}
    if not exists:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (_target(table).as_string(),))
        if cursor.fetchone() == (True,):
            raise LakehouseError(
                f"Postgres, {table.postgres}: exists already, but lakehouse did not create it: drop it, or publish to "
                "another table"
            )
        all_columns = SQL(", ").join(Identifier(name) + SQL(" ") + kind for name, kind in types.items())
        create = SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))")
        cursor.execute(create.format(_target(table), all_columns, _names(table.keys)))
    cursor.execute(SQL("SELECT * FROM {} LIMIT 0").format(_target(table)))
    present = {column.name for column in cursor.description or ()}
    for name in types.keys() - present:
        cursor.execute(SQL("ALTER TABLE {} ADD COLUMN {} {}").format(_target(table), Identifier(name), types[name]))


def _last_changes(feed: DataFrame, table: SqlTable) -> DataFrame:
    """The last state of each changed key: its row, and whether it is deleted."""
    rows = [name for name in feed.columns if not name.startswith("_")]
    is_deleted = F.col("_change_type") == "delete"
    order = F.struct("_commit_version", ~is_deleted)
    last = F.max_by(F.struct(*rows, is_deleted.alias(DELETED)), order).alias("last")
    changes = feed.where("_change_type <> 'update_preimage'")
    return changes.groupBy(*(F.col(key).alias(f"_{key}") for key in table.keys)).agg(last).select("last.*")


def _apply(cursor: psycopg.Cursor, table: SqlTable, changes: DataFrame) -> int:
    names, keys = [name for name in changes.columns if name != DELETED], table.keys
    columns, target = _names(names), _target(table)
    cursor.execute(
        SQL("CREATE TEMP TABLE _changes ON COMMIT DROP AS SELECT {}, false AS {} FROM {} WITH NO DATA").format(
            columns, Identifier(DELETED), target
        )
    )
    with cursor.copy(SQL("COPY _changes ({}, {}) FROM STDIN").format(columns, Identifier(DELETED))) as copy:
        for row in changes.select(*(_to_text(changes, name) for name in (*names, DELETED))).toLocalIterator():
            copy.write_row(row)
    same = SQL(" AND ").join(SQL("old.{0} = new.{0}").format(Identifier(key)) for key in keys)
    cursor.execute(SQL("DELETE FROM {} old USING _changes new WHERE {} AND new._deleted").format(target, same))
    changed = cursor.rowcount
    others = [name for name in names if name not in keys]
    new_values = SQL(", ").join(SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in others)
    on_conflict = SQL("DO UPDATE SET ") + new_values if others else SQL("DO NOTHING")
    cursor.execute(
        SQL("INSERT INTO {} ({}) SELECT {} FROM _changes WHERE NOT _deleted ON CONFLICT ({}) ").format(
            target, columns, columns, _names(keys)
        )
        + on_conflict
    )
    return changed + cursor.rowcount


def _to_text(rows: DataFrame, name: str) -> Column:
    """A value as text that Postgres can read, without NUL characters, because its texts can't contain them."""
    if isinstance(rows.schema[name].dataType, StructType | ArrayType):
        return F.regexp_replace(F.to_json(name), NUL_IN_JSON, "$1").alias(name)
    return F.replace(F.col(name).cast("string"), F.lit("\0"), F.lit("")).alias(name)


def _target(table: SqlTable) -> Identifier:
    return Identifier(*str(table.postgres).split("."))


def _names(names: Iterable[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))
