"""Suites of rules in SQL that must be TRUE for each row of a table, or for the table as a whole.

A rule passes only when it is TRUE: not when it is NULL or can't be computed. On a table without rows, rules about rows
and keys fail, unless the suite says that the table may be empty.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from pulsar_lakehouse.contracts.checks import Check, Mode
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.tables.declared import Ddl, as_ddl

FIGURE = re.compile(r"\{([a-z_][\w.]*)\}")


class Severity(StrEnum):
    """What happens if a rule does not pass."""

    WARNING = "warning"
    """It is reported."""
    CRITICAL = "critical"
    """It is reported, `lakehouse validate` fails, and Airflow refreshes no SQL table."""


class Kind(StrEnum):
    """What a rule is about."""

    ROW = "each row"
    KEY = "keys"
    REFERENCE = "reference"
    TABLE = "table"
    FIGURES = "figures"
    TYPES = "types"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`holds` is SQL over a row's columns, over aggregates of them, or over figures.

    For keys and references, it names the columns.
    """

    name: str
    kind: Kind
    holds: str
    severity: Severity = Severity.CRITICAL
    to: str = ""
    """For a reference: the table that must have the value as a key."""
    may_be_null: bool = False
    """For a reference: whether NULL passes."""
    may_be_truncated: bool = False
    """For a reference: whether a key can be without a last version, as a truncation has deleted it."""
    shows: str = ""
    """For a table or figures: SQL for what the report shows. If empty, the report shows `holds` and its figures."""
    columns: Ddl = ""
    """For types: the declared columns."""

    @property
    def declared(self) -> str:
        """`holds` as people read it."""
        return FIGURE.sub(r"\1", self.holds)

    @property
    def condition(self) -> str:
        """For rows and references: SQL over a row. A reference has a column of the rule's name."""
        if self.kind is Kind.REFERENCE:
            return f"{self.name} OR {self.holds.split(', ')[0]} IS NULL" if self.may_be_null else self.name
        return self.holds

    @property
    def both_types(self) -> tuple[str, str]:
        """For types: SQL for a struct of the table's columns, and for one of the declared types."""
        ddl = flat = as_ddl(self.columns)
        while flat != (flat := re.sub(r"<[^<>]*>|\([^()]*\)", "", flat)):
            pass
        names = ", ".join(column.split()[0] for column in flat.split(","))
        return f"struct({names})", f"CAST(NULL AS STRUCT<{' '.join(ddl.split())}>)"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The rules of a table.

    `key` are the columns that identify a row in the report. `arrives` says how new rows are found: by the change feed
    (`CHANGE_FEED`), by a column with the time at which they arrived (its name), or not at all (None).
    """

    table: str
    rules: tuple[Rule, ...]
    key: tuple[str, ...]
    arrives: str | None = None
    may_be_empty: bool = False
    personal: tuple[str, ...] = ()
    """The columns that no example of a failing row shows."""

    def __post_init__(self) -> None:
        for name, count in Counter(rule.name for rule in self.rules).items():
            if count > 1:
                raise ConfigurationError(f"check {name}: {self.table} has a rule of this name already: choose another")


CHANGE_FEED = "the change feed"


def each_row(name: str, holds: str, severity: Severity = Severity.CRITICAL) -> Rule:
    """A rule that must be TRUE for each row."""
    return Rule(name=name, kind=Kind.ROW, holds=holds, severity=severity)


def checked(checks: Mapping[str, Check]) -> tuple[Rule, ...]:
    """Declared checks as rules.

    Rows that a check keeps out of the table are critical if they are there after all: they are older than the check, or
    somebody has changed the table.
    """

    def severity(check: Check) -> Severity:
        return Severity.WARNING if check.mode is Mode.WARN else Severity.CRITICAL

    return tuple(each_row(name, check.sql, severity(check)) for name, check in checks.items())


def not_null(*columns: str) -> tuple[Rule, ...]:
    return tuple(each_row(f"{column}_is_there", f"{column} IS NOT NULL") for column in columns)


def unique(*columns: str) -> Rule:
    """No two rows are equal in all of these columns."""
    return Rule(name=f"{'_'.join(columns)}_is_unique", kind=Kind.KEY, holds=", ".join(columns))


def known(*columns: str, to: str, may_be_null: bool = False, may_be_truncated: bool = False) -> Rule:
    """The values are the key of a row in the table, or in its history if it has one: the history forgets no key."""
    name = f"{'_and_'.join(columns).replace('.', '_')}_is_known"
    rule = Rule(name=name, kind=Kind.REFERENCE, holds=", ".join(columns), to=to, may_be_null=may_be_null)
    return replace(rule, may_be_truncated=may_be_truncated)


def whole(name: str, holds: str, severity: Severity = Severity.CRITICAL, *, shows: str = "") -> Rule:
    """A rule that must be TRUE for the table: SQL over aggregates of its rows, and figures as in `logged`."""
    return Rule(name=name, kind=Kind.TABLE, holds=holds, severity=severity, shows=shows)


def logged(name: str, holds: str, severity: Severity = Severity.CRITICAL, *, shows: str = "") -> Rule:
    """A rule on what the tables' logs say: SQL over figures alone, for which no row is read.

    `{rows}` is the number of the table's rows, `{rows_before}` that of the last validation, and `{usual_growth}` the
    median growth of the last ones. `{lag}` is the number of commits that its stream has not read, `{newest}` the
    publish time of its last message. `{silver.users}` is the number of rows of another table,
    `{quarantine.malformed.users}` that of a topic. A figure that is not known is NULL.
    """
    return Rule(name=name, kind=Kind.FIGURES, holds=holds, severity=severity, shows=shows)


def types(columns: Ddl) -> Rule:
    """The columns exist and have the declared types."""
    return Rule(name="types_are_as_declared", kind=Kind.TYPES, holds="the declared types", columns=columns)


def volume() -> tuple[Rule, ...]:
    """Compared with past validations, the table has not shrunk, and has not grown much less or more than usual."""
    usual = "{rows} - {rows_before} = 0 OR {rows} - {rows_before} BETWEEN 0.1 * {usual_growth} AND 10 * {usual_growth}"
    return (
        logged("has_not_shrunk", "{rows_before} IS NULL OR {rows} >= 0.9 * {rows_before}", Severity.WARNING),
        logged("grew_as_usual", f"{{usual_growth}} IS NULL OR {usual}", Severity.WARNING),
    )


def up_to_date() -> Rule:
    return logged(
        "has_read_all_of_its_sources",
        "{lag} = 0",
        Severity.WARNING,
        shows="coalesce('commits not read: ' || {lag}, 'never ran')",
    )


def with_figures(sql: str, known: Mapping[str, object]) -> str:
    """The SQL with the value in place of each `{figure}`, or NULL if it is not known."""

    def value(name: re.Match[str]) -> str:
        match known.get(name[1]):
            case None:
                return "NULL"
            case datetime() as moment:
                return f"TIMESTAMP '{moment.isoformat()}'"
            case number:
                return str(number)

    return FIGURE.sub(value, sql)


def beside_figures(rule: Rule, known: Mapping[str, object]) -> str:
    """The rule as it is declared, and the value of each figure that it names."""
    named = dict.fromkeys(FIGURE.findall(rule.holds))
    values = ", ".join(f"{name} = {'NULL' if known.get(name) is None else known[name]}" for name in named)
    return f"{rule.declared}, with {values}" if values else rule.holds
