"""Checks: SQL that must be TRUE of each row of a table, and what happens with a row of which it is not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from pulsar_lakehouse.contracts.not_sql import why_not_sql
from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError, PermanentError
from pulsar_lakehouse.spark.declared_sql import try_eval, value_of, why_no_condition
from pulsar_lakehouse.tables.declared import NAME


class Mode(StrEnum):
    """What happens with a row that fails a check."""

    WARN = "warn"
    QUARANTINE = "quarantine"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """SQL over the columns of a table that must be TRUE of each row.

    A row of which it is FALSE or NULL, or on which it ends in an error, fails the check.
    """

    sql: str
    mode: Mode

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the SQL names, without the fields of structs. Raises SqlglotError if it is not SQL."""
        return frozenset(column.parts[0].name.lower() for column in _parsed(self.sql).find_all(exp.Column))


def warn(sql: str) -> Check:
    """It is written, and `lakehouse validate` reports it."""
    return Check(sql, Mode.WARN)


def quarantine(sql: str) -> Check:
    """It goes to quarantine, with the names of all checks that it fails, and the others go on."""
    return Check(sql, Mode.QUARANTINE)


def fail(sql: str) -> Check:
    """No row of its batch is written, and the step ends with one line that names the check, the table and a row."""
    return Check(sql, Mode.FAIL)


def wrong_with(name: str, check: Check) -> str:
    """What is wrong with a check, as far as it can be known without Spark; empty if nothing is."""
    if not NAME.fullmatch(name):
        return f"check {name or repr(name)}: must be named with lower-case letters, digits and _, after a letter"
    if not check.sql.strip():
        return f"check {name}: has no SQL"
    try:
        _parsed(check.sql)
    except SqlglotError as error:
        return f"check {name}: {check.sql}: not SQL: {why_not_sql(error, check.sql)[1]}"
    return ""


def refuse_wrong(checks: Mapping[str, Check], *, within: str) -> None:
    """Raises ConfigurationError, with a line for each check with which something is wrong."""
    if wrong := [line for name, check in checks.items() if (line := wrong_with(name, check))]:
        raise ConfigurationError("\n".join(f"{within}: {line}" for line in wrong))


def _parsed(sql: str) -> exp.Expr:
    """The one expression that a text is."""
    trees = [tree for tree in parse(sql, dialect="spark") if tree is not None]
    if len(trees) != 1 or isinstance(trees[0], exp.Query) or trees[0].find(exp.Placeholder):
        raise SqlglotError("must be one condition, without parameters")
    return trees[0]


def of_mode(checks: Mapping[str, Check], mode: Mode) -> dict[str, Check]:
    return {name: check for name, check in checks.items() if check.mode is mode}


def resolve(checks: Mapping[str, Check], *, over: StructType, within: str) -> None:
    """Raises DeclarationsError for the checks that are no conditions over these columns. Needs Spark."""
    if checks:
        _resolve(tuple(checks.items()), over.json(), within)


@cache  # streams are started again and again
def _resolve(checks: tuple[tuple[str, Check], ...], columns: str, within: str) -> None:
    rows = SparkSession.active().createDataFrame([], StructType.fromJson(json.loads(columns)))
    try:
        rows.select(*(_holds(check, "") for _, check in checks))
    except AnalysisException:
        lines = (why_no_condition(rows, f"{within}: check {name}", check.sql) for name, check in checks)
        raise DeclarationsError([line for line in lines if line]) from None


def failed(checks: Mapping[str, Check], *, given: str) -> Column:
    """The names of the checks that a row fails, joined by commas; empty if there are none.

    Use it within a branch, like `try_eval`. `given` is a condition of that branch.
    """
    return F.concat_ws(", ", *(F.when(~_holds(check, given), name) for name, check in checks.items()))


def stop_if_failed(rows: DataFrame, checks: Mapping[str, Check], *, table: str, keys: Sequence[str]) -> None:
    """Raises PermanentError if a row that is about to be written fails a check whose mode is FAIL.

    The line shows these `keys` of one such row. The first of them is never NULL.
    """
    if not (stopping := of_mode(checks, Mode.FAIL)):
        return
    given = f"`{keys[0]}` IS NOT NULL"
    names = F.when(F.expr(given), failed(stopping, given=given))
    failing = rows.select(names.alias("failed"), F.to_json(F.struct(*keys)).alias("row")).where("failed != ''")
    counts = failing.groupBy("failed").agg(F.count("*").alias("rows"), F.min("row").alias("row")).orderBy("failed")
    if problems := [f"{each.rows:,} with {each.failed}, such as {each.row}" for each in counts.collect()]:
        raise PermanentError(
            f"{table}: rows fail a check whose mode is fail: {'; '.join(problems)}: nothing is written until the rows "
            "are corrected, or the check is changed"
        )


def _holds(check: Check, given: str) -> Column:
    """Whether a check passes: it is TRUE, not NULL, and does not end in an error."""
    return F.coalesce(try_eval(value_of(check.sql, given=given)), F.lit(False))
