"""Reads a table of Postgres, or a SELECT, as texts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
import pyarrow as pa
from psycopg.sql import SQL, Composable, Identifier
from pyspark.sql import types as T

from pulsar_lakehouse.contracts.sources import Postgres
from pulsar_lakehouse.inspection.postgres_texts import SESSION, texts_in
from pulsar_lakehouse.postgres import postgres_transaction
from pulsar_lakehouse.settings import Settings


@contextmanager
def open_postgres(settings: Settings, source: Postgres) -> Iterator[tuple[psycopg.Cursor, Mapping[str, str]]]:
    """A transaction that only reads, and the types of the table's columns."""
    with postgres_transaction(settings, source.original, needed=f"source {source.original}") as cursor:
        cursor.execute(SESSION)
        cursor.execute("SET LOCAL lock_timeout = '10s'")  # of an owner who rewrites the table, say
        cursor.execute(SQL("SELECT * FROM {} AS source LIMIT 0").format(_relation(source)))
        columns = cursor.description or []
        cursor.execute("SELECT unnest(%s::oid[])::regtype::text", ([column.type_code for column in columns],))
        yield cursor, {column.name: kind for column, (kind,) in zip(columns, cursor.fetchall(), strict=True)}


def rows_of(cursor: psycopg.Cursor, source: Postgres) -> Iterator[pa.Table]:
    """One statement reads all rows, so they are those of one time."""
    columns = SQL(", ").join(map(_asked, source.columns.fields))
    copy = SQL("COPY (SELECT {} FROM {} AS source) TO STDOUT (FORMAT csv, HEADER)")
    with cursor.copy(copy.format(columns, _relation(source))) as sent, texts_in(sent, source.columns.names) as rows:
        for batch in rows:
            yield pa.Table.from_batches([batch])


def _asked(field: T.StructField) -> Composable:
    is_binary = isinstance(field.dataType, T.BinaryType)
    column = SQL(r"translate(encode({}, 'base64'), E'\n', '')" if is_binary else "{}::text")
    return SQL("{} AS {}").format(column.format(Identifier("source", field.name)), Identifier(field.name))


def _relation(source: Postgres) -> Composable:
    name = source.original
    return SQL(name) if name.startswith("(") else Identifier(*name.split("."))
