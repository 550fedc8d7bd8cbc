"""Read gold tables that are declared in SQL files: a header of comments, then one SELECT.

    -- Revenue by category and hour.
    -- keys: category, window_start
    -- refresh: incremental
    -- sources: gold.enriched_orders
    -- publish: topic revenue_by_hour, postgres revenue_by_hour
    SELECT ...

The table is named after the file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lakehouse.delta.tables import Table
from lakehouse.errors import ConfigurationError, DeclarationsError
from lakehouse.terminal import shown

INCREMENTAL, FULL = "incremental", "full"
TOPIC, POSTGRES = "topic", "postgres"
NAMES = ("keys", "refresh", "sources", "publish")

SQL_ROWS = Table(
    name="quarantine.sql_rows",
    columns="table STRING, keys STRING, reason STRING, quarantined_at TIMESTAMP",
    partition_by=("table",),
)
"""Rows on which the SELECT of a declared table fails. `keys` are JSON; NULL stands for the whole table."""

_NAME = re.compile(r"[a-z]\w*")
_TABLE = re.compile(r"[a-z]\w*\.[a-z]\w*")


@dataclass(frozen=True, kw_only=True)
class SqlTable:
    """A declared table: a SELECT, and what the header before it says. The table is named after the file."""

    file: Path
    sql: str
    """The text of the whole file, so that line numbers in Spark's errors are those of the file."""
    keys: tuple[str, ...]
    """Columns of the SELECT: unique together, and never NULL. Required. Example: `-- keys: city`"""
    refresh: str
    """`incremental` to recompute only what changes of the sources touch, or `full`. Required.
    Example: `-- refresh: incremental`"""
    sources: tuple[str, ...]
    """The tables that the SELECT reads. Required. Example: `-- sources: gold.enriched_sales`"""
    topic: str | None = None
    """The Pulsar topic that `lakehouse publish` keeps equal to the table.
    Example: `-- publish: topic revenue_by_city`"""
    postgres: str | None = None
    """The table in Postgres that `lakehouse publish` keeps equal to the table.
    Example: `-- publish: postgres revenue_by_city`"""

    @property
    def name(self) -> str:
        return f"gold.{self.file.stem}"

    @cached_property
    def at(self) -> str:
        """The file as errors name it."""
        return shown(self.file)


def declared_in(folder: Path) -> tuple[SqlTable, ...]:
    """The tables that the folder's SQL files declare, each after its sources.

    Raises DeclarationsError, with a line for each invalid header, or ConfigurationError for tables that are made from
    each other.
    """
    tables, mistakes = [], []
    for file in sorted(folder.glob("*.sql")):
        try:
            tables.append(read_declaration(file))
        except ConfigurationError as error:
            mistakes.append(str(error))
    if mistakes:
        raise DeclarationsError(mistakes)
    return tuple(_in_order({table.name: table for table in tables}))


def read_declaration(file: Path) -> SqlTable:
    """The table that a SQL file declares. Raises ConfigurationError, with the file, for an invalid name or header."""
    sql = file.read_text()
    if not _NAME.fullmatch(file.stem):
        raise ConfigurationError(
            f"{shown(file)}: the file name becomes the table's: use lower-case letters, digits and _"
        )
    given = _header(file, sql)
    for name in NAMES[:3]:
        if name not in given:
            raise ConfigurationError(f"{shown(file)}:1: `-- {name}: ...` is missing in the header")
    published = _published(file, *given["publish"]) if "publish" in given else {}
    table = SqlTable(
        file=file,
        sql=sql,
        keys=_listed(file, *given["keys"], _NAME, "columns such as category, window_start"),
        refresh=given["refresh"][1],
        sources=_listed(file, *given["sources"], _TABLE, "tables such as silver.users"),
        topic=published.get(TOPIC),
        postgres=published.get(POSTGRES),
    )
    if table.refresh not in (INCREMENTAL, FULL):
        line = given["refresh"][0]
        raise ConfigurationError(f"{shown(file)}:{line}: refresh: {table.refresh}: must be {INCREMENTAL} or {FULL}")
    return table


def _header(file: Path, sql: str) -> dict[str, tuple[int, str]]:
    """The declarations in the comments before the SELECT, by name: line number and text."""
    given: dict[str, tuple[int, str]] = {}
    for line, text in enumerate(sql.splitlines(), 1):
        if not text.startswith("--"):
            break
        if found := re.fullmatch(r"--\s*(\w+):\s*(.*?)\s*", text):
            name, value = found.groups()
            if name not in NAMES:
                raise ConfigurationError(f"{shown(file)}:{line}: {name}: unknown; must be one of {', '.join(NAMES)}")
            if name in given:
                raise ConfigurationError(f"{shown(file)}:{line}: {name} is given twice")
            given[name] = (line, value)
    return given


def _listed(file: Path, line: int, text: str, pattern: re.Pattern[str], wanted: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if not pattern.fullmatch(name):
            raise ConfigurationError(f"{shown(file)}:{line}: {name or 'nothing'}: must be {wanted}")
    return names


def _published(file: Path, line: int, text: str) -> dict[str, str]:
    """Where the table is published: the name of the topic or Postgres table, by kind."""
    found = [re.fullmatch(rf"({TOPIC}|{POSTGRES}) ([\w.-]+)", part.strip()) for part in text.split(",")]
    given = {each[1]: each[2] for each in found if each}
    if len(given) < len(found):
        raise ConfigurationError(
            f"{shown(file)}:{line}: publish: {text}: must be `topic NAME`, `postgres TABLE`, or both"
        )
    return given


def _in_order(tables: Mapping[str, SqlTable]) -> Iterable[SqlTable]:
    done: dict[str, SqlTable] = {}

    def visit(table: SqlTable, above: tuple[str, ...]) -> None:
        if table.name in above:
            raise ConfigurationError(f"{table.at}: {table.name} is made from itself")
        for source in table.sources:
            if source in tables:
                visit(tables[source], (*above, table.name))
        done.setdefault(table.name, table)

    for table in tables.values():
        visit(table, ())
    return done.values()
