"""What is in the tests' Postgres, and the settings to publish to it."""

from typing import Any

import psycopg
from psycopg.rows import dict_row
from pydantic import SecretStr

from pulsar_lakehouse.settings import Settings


def in_postgres(settings: Settings, url: str) -> Settings:
    """The settings, with the Postgres that has this address."""
    return settings.model_copy(update={"postgres": settings.postgres.model_copy(update={"url": SecretStr(url)})})


def held_in_postgres(url: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of its first column."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
