"""Transactions of the Postgres that the settings name."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.settings import Settings


@contextmanager
def postgres_transaction(settings: Settings, table: str, *, needed: str) -> Iterator[psycopg.Cursor]:
    """A transaction of its own connection. `needed` says for what, as errors tell it.

    Raises ConfigurationError if the URL is missing or invalid, and LakehouseError with Postgres's reason.
    """
    if settings.postgres.url is None:
        raise ConfigurationError(f"{needed}: set LAKEHOUSE_POSTGRES__URL to its address")
    url = settings.postgres.url.get_secret_value()
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its message quotes the URL, with the password
        raise ConfigurationError("LAKEHOUSE_POSTGRES__URL: must be postgresql://user:password@host/database") from None
    try:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            yield cursor
    except psycopg.Error as error:
        raise LakehouseError(f"Postgres, {table}: {str(error).partition(chr(10))[0]}") from error
