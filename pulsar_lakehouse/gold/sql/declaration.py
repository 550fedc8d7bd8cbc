"""Read gold tables that are declared in SQL files: a header of comments, then one SELECT.

    -- Revenue by category and hour.
    -- keys: category, window_start
    -- refresh: incremental
    -- publish: topic revenue_by_hour, postgres revenue_by_hour
    -- parameter hours: 1
    -- check revenue_is_not_negative: revenue >= 0
    SELECT ...

The table is named after the file, and made from the tables that the SELECT reads.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pulsar_lakehouse.contracts.checks import Check
from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError
from pulsar_lakehouse.gold.sql.header import A_LITERAL, PARAMETER, POSTGRES, TOPIC, read_header
from pulsar_lakehouse.gold.sql.parsing import line_of, literal, name_of, parameters_in, parsed, tables_in
from pulsar_lakehouse.tables.declared import NAME, Table
from pulsar_lakehouse.terminal import shown

SQL_ROWS = Table(
    name="quarantine.sql_rows",
    columns="table STRING, keys STRING, reason STRING, quarantined_at TIMESTAMP",
    partition_by=("table",),
)
"""Rows of declared tables on which the SELECT fails, or that fail a check. `keys` are JSON; NULL stands for the whole
table."""


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
    """The tables that the SELECT reads."""
    topic: str | None = None
    """The Pulsar topic that `lakehouse publish` keeps equal to the table.
    Example: `-- publish: topic revenue_by_city`"""
    postgres: str | None = None
    """The table in Postgres that `lakehouse publish` keeps equal to the table.
    Example: `-- publish: postgres revenue_by_city`"""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """What must be TRUE of each row, by name, and what happens if it is not: `warn`, `quarantine` or `fail`.
    Example: `-- check revenue_is_positive (warn): revenue > 0`"""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The literals that the SELECT's parameter markers, such as `:hours`, stand for.
    Example: `-- parameter hours: 1`"""

    @property
    def name(self) -> str:
        return f"gold.{self.file.stem}"

    @cached_property
    def at(self) -> str:
        """The file as errors name it."""
        return shown(self.file)

    def at_entry(self, kind: str, name: str = "") -> str:
        """File and line of an entry of the header, such as a check of this name."""
        return f"{self.at}:{_line_of_entry(self.sql, kind, name)}"

    def at_source(self, name: str) -> str:
        """File and line where the SELECT reads a table."""
        nodes = tables_in(parsed(self.file, self.sql))
        return f"{self.at}:{next((line_of(node) for node in nodes if name_of(node) == name), 1)}"


def declared_in(folder: Path) -> tuple[SqlTable, ...]:
    """The tables that the folder's SQL files declare, each after its sources.

    Raises DeclarationsError, with a line for each invalid file, or ConfigurationError for tables that are made from
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
    """The table that a SQL file declares.

    Raises ConfigurationError, with file and line, for an invalid name or header, and for what is no SELECT.
    """
    sql = file.read_text()
    if not NAME.fullmatch(file.stem):
        raise ConfigurationError(
            f"{shown(file)}:1: {file.stem}: the file name becomes the table's: use lower-case letters, digits and _"
        )
    header, tree = read_header(file, sql), parsed(file, sql)
    used = parameters_in(tree)
    for name in used:
        if name not in header.parameters:
            line = _line(sql, rf"(?!--).*:{name}\b")
            raise ConfigurationError(f"{shown(file)}:{line}: :{name}: declare it, as `-- parameter {name}: VALUE`")
    for name in header.parameters:
        if name not in used:
            line = _line_of_entry(sql, PARAMETER, name)
            raise ConfigurationError(f"{shown(file)}:{line}: parameter {name}: the SELECT has no :{name}")
    return SqlTable(
        file=file,
        sql=sql,
        keys=header.keys,
        refresh=header.refresh,
        sources=tuple(dict.fromkeys(name_of(node) for node in tables_in(tree))),
        topic=header.published.get(TOPIC),
        postgres=header.published.get(POSTGRES),
        checks=header.checks,
        parameters=header.parameters,
    )


def with_parameters(tables: Sequence[SqlTable], settings: Mapping[str, Mapping[str, str]]) -> tuple[SqlTable, ...]:
    """The tables, with the values of parameters from `settings`, by table and parameter, in place of the declared ones.

    Raises ConfigurationError for a table or parameter that is not declared, and for a value that is no literal.
    """
    known = {table.file.stem: table.parameters for table in tables if table.parameters}
    for table, values in settings.items():
        if table not in known:
            raise ConfigurationError(f"parameters.{table}: no SQL table of this name has any; {_there_are(known)}")
        for name, value in values.items():
            if name not in known[table]:
                raise ConfigurationError(f"parameters.{table}.{name}: no such parameter; {_there_are(known[table])}")
            if literal(value) is None:
                raise ConfigurationError(f"parameters.{table}.{name}: {value}: {A_LITERAL}")
    return tuple(
        replace(table, parameters={**table.parameters, **settings.get(table.file.stem, {})}) for table in tables
    )


def _there_are(names: Iterable[str]) -> str:
    return f"there are {', '.join(names) or 'none'}"


def _line_of_entry(sql: str, kind: str, name: str) -> int:
    """The number of the header's line for a kind of entry. Checks and parameters have a name."""
    return _line(sql, rf"--\s*{kind}\s+{name}\b" if name else rf"--\s*{kind}\s*:")


def _line(sql: str, pattern: str) -> int:
    """The number of the first line that begins with a pattern."""
    return next((number for number, line in enumerate(sql.splitlines(), 1) if re.match(pattern, line)), 1)


def _in_order(tables: Mapping[str, SqlTable]) -> Iterable[SqlTable]:
    done: dict[str, SqlTable] = {}

    def visit(table: SqlTable, above: tuple[SqlTable, ...]) -> None:
        if table in above:
            raise ConfigurationError(_circle(above[above.index(table) :]))
        for source in table.sources:
            if source in tables:
                visit(tables[source], (*above, table))
        done.setdefault(table.name, table)

    for table in tables.values():
        visit(table, ())
    return done.values()


def _circle(tables: Sequence[SqlTable]) -> str:
    """What is wrong with tables of which each reads the next one, and the last one the first."""
    first, *others = tables
    read = [*others, first]
    more = (f", which reads {it.name} ({of.at_source(it.name)})" for of, it in zip(others, read[1:], strict=True))
    return f"{first.at_source(read[0].name)}: {first.name} is made from itself: it reads {read[0].name}{''.join(more)}"
