"""Transactions of the Postgres that the settings name."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.settings import Settings

CONNECT_SECONDS = 10
"""Seconds after which a Postgres that does not answer is away, unless the URL says otherwise."""
ANSWER_SECONDS = 1800.0
"""Seconds after which a statement has no answer, and a copy no next row: keepalives notice only a machine that is gone,
and not a server or a pooler that hangs."""


class _Connection(psycopg.Connection[TupleRow]):
    """A connection that ends if nothing comes for that long."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        try:
            return super().wait(gen, interval, timeout or ANSWER_SECONDS)
        except psycopg.errors._WaitTimeout as error:
            address = f"{self.info.host}:{self.info.port}"
            self.close()
            raise psycopg.OperationalError(f"{address} has not answered for {ANSWER_SECONDS:g} s") from error


@contextmanager
def postgres_transaction(settings: Settings, table: str, *, needed: str) -> Iterator[psycopg.Cursor]:
    """A transaction of its own connection. `needed` says for what, as errors tell it.

    Raises ConfigurationError if the URL is missing or invalid, and LakehouseError with Postgres's reason.
    """
    if settings.postgres.url is None:
        raise ConfigurationError(f"{needed}: set LAKEHOUSE_POSTGRES__URL to its address")
    url = settings.postgres.url.get_secret_value()
    try:
        is_patient = "connect_timeout" in conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its message quotes the URL, with the password
        raise ConfigurationError("LAKEHOUSE_POSTGRES__URL: must be postgresql://user:password@host/database") from None
    patience = {} if is_patient else {"connect_timeout": CONNECT_SECONDS}
    alive = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
    try:
        with _Connection.connect(make_conninfo(url, **patience, **alive)) as connection, connection.cursor() as cursor:
            yield cursor
    except psycopg.Error as error:
        raise LakehouseError(f"Postgres, {table}: {str(error).partition(chr(10))[0]}") from error
