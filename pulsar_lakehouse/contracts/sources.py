"""Declares state that no topic has: tables in Postgres, files, and Delta tables of others."""

import re
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import PurePosixPath

from pyspark.sql import types as T

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.topics import Fields, Topic

DURATION = re.compile(r"(\d+) ?(s|m|h|d|(?:second|minute|hour|day)s?)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
FORMATS = (".csv", ".parquet")
KEY_TYPES = (T.StringType, T.IntegerType, T.LongType, T.BooleanType, T.DateType)


def seconds_of(duration: str) -> int:
    """The seconds of a time such as `10 minutes`; 0 if it is none."""
    found = DURATION.fullmatch(duration.strip())
    return int(found[1]) * SECONDS[found[2][0]] if found else 0


FIELDS = Fields()
"""What the field of a source is set to; a declaration must give its fields all the same."""


@dataclass(frozen=True)
class Source:
    """What all sources have. `topic` is what the messages of a source decode as."""

    name: str
    """The name of its bronze table, and of the entity. Example: `name="regions"`"""
    fields: Fields = FIELDS
    """The typed columns that are read, as DDL text or a StructType. Others are ignored.
    Example: `fields="id BIGINT NOT NULL, name STRING"`"""
    _: KW_ONLY
    max_deletes: float | int = 0.5
    """The share of rows that a snapshot may lack. One that lacks more does not land, as half of it may be missing;
    `lakehouse land NAME --accept-loss` lands it. Example: `max_deletes=0.1`"""

    @cached_property
    def topic(self) -> Topic:
        return Topic(self.name, self.fields)

    @property
    def columns(self) -> T.StructType:
        """The same fields, as a StructType."""
        return self.topic.fields

    @property
    def place(self) -> str:
        """Where it is, as graphs and errors name it, such as `postgres public.regions`."""
        raise NotImplementedError

    def mistakes(self) -> Iterator[str]:
        """What is wrong with the declaration: a line for each mistake."""
        if not 0 <= self.max_deletes <= 1:
            yield f"max_deletes: {self.max_deletes}: must be a share from 0 to 1, such as 0.1"


@checked
@dataclass(frozen=True)
class Postgres(Source):
    """A table in the Postgres that LAKEHOUSE_POSTGRES__URL names."""

    _: KW_ONLY
    table: str = ""
    """The table, if it has another name, or a SELECT in parentheses.
    Example: `table="crm.regions"`"""
    every: str = "10 minutes"
    """How often it is read. Example: `every="1 hour"`"""

    @property
    def original(self) -> str:
        return self.table or self.name

    @property
    def place(self) -> str:
        return f"postgres {' '.join(self.original.split())}"

    @property
    def seconds(self) -> int:
        """The seconds of `every`; 0 if it is wrong."""
        return seconds_of(self.every)

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if not self.seconds:
            yield f"every: {self.every}: must be a time such as 30 seconds, 10 minutes, 1 hour or 1 day"


@checked
@dataclass(frozen=True)
class Files(Source):
    """Files that together are the table: CSV with a header, or Parquet. They are read whenever one has changed."""

    _: KW_ONLY
    path: str
    """Beside the folder of declarations, or absolute, or in the object store. A `*` stands for any characters but a
    slash. Example: `path="regions/*.csv"`"""

    @property
    def place(self) -> str:
        return f"files {self.path}"

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if PurePosixPath(self.path).suffix not in FORMATS:
            yield f"path: {self.path}: must end with .csv or .parquet, such as {self.name}/*.csv"


@checked
@dataclass(frozen=True)
class DeltaTable(Source):
    """A Delta table of somebody else. It is read whenever it has a new version."""

    _: KW_ONLY
    path: str
    """Its folder: beside the folder of declarations, or absolute, or in the object store.
    Example: `path="s3a://shared/regions"`"""

    @property
    def place(self) -> str:
        return f"delta {self.path}"

    def mistakes(self) -> Iterator[str]:
        yield from super().mistakes()
        if not self.path.strip():
            yield "path: is empty: must be the folder of a Delta table"
