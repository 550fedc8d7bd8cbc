"""Evaluates SQL from declarations: an error affects one row, not the batch, and wrong SQL is reported by its name."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import BooleanType, DataType, NullType

from pulsar_lakehouse.errors import DeclarationsError
from pulsar_lakehouse.near import did_you_mean
from pulsar_lakehouse.spark.functions import DECLARED, with_calls

_EXPRESSIONS = "org.apache.spark.sql.classic.ExpressionUtils"
_TRY = "org.apache.spark.sql.catalyst.expressions.TryEval"
SHOWN = 100
"""Characters of a value that a reason shows."""


def try_eval(value: Column) -> Column:
    """The value; NULL for a row on which it fails.

    Use it only within a branch of `F.when`. Spark computes subexpressions that several expressions share in advance,
    where their errors are not caught; it does not do so with those in a branch.
    """
    assert SparkContext._active_spark_context is not None
    jvm = SparkContext._active_spark_context._jvm
    expressions = getattr(jvm, _EXPRESSIONS)
    # Spark's own try_add and the like use this expression; there is no function for it.
    return ClassicColumn(expressions.column(getattr(jvm, _TRY)(expressions.expression(value._jc))))


def value_of(sql: str, *, given: str = "", spared: str = "") -> Column:
    """The value of declared SQL, which can call functions of the project: `with_calls` says what the others are."""
    return F.expr(with_calls(sql, given, spared))


def merged_key(sql: str, key: str, kind: DataType) -> Column:
    """The value of SQL that says which key a row was merged into; NULL where it fails, or the row has no key itself.

    `kind` is the type of keys.
    """
    given = f"`{key}` IS NOT NULL"
    return F.when(F.expr(given), try_eval(value_of(sql, given=given).cast(kind)))


@contextmanager
def naming(rows: DataFrame, declared: Mapping[str, str]) -> Iterator[None]:
    """If the block raises AnalysisException, raise DeclarationsError for what Spark can't resolve over `rows`.

    `declared` is SQL by the name that the error gives it.
    """
    try:
        yield
    except AnalysisException:
        if wrong := list(filter(None, (why_unresolved(rows, name, sql) for name, sql in declared.items()))):
            raise DeclarationsError(wrong) from None
        raise


def why_unresolved(rows: DataFrame, name: str, sql: str) -> str:
    """Why Spark can't resolve SQL for each of the rows, as a line that names it; empty if it can."""
    try:
        # Within a struct and beside other columns, only what gives one value for each row is allowed.
        rows.select("*", F.struct(value_of(sql)))
    except AnalysisException as error:
        return f"{name}: {sql}: {reason_of(error)}"
    return ""


def why_no_condition(rows: DataFrame, name: str, sql: str) -> str:
    """Why SQL is no condition over the rows, as a line that names it; empty if it is one."""
    if why := why_unresolved(rows, name, sql):
        return why
    kind = rows.select(value_of(sql)).schema[0].dataType
    is_condition = isinstance(kind, BooleanType | NullType)
    return "" if is_condition else f"{name}: {sql} is {kind.simpleString()}: must be a condition, which is TRUE or not"


def reason_of(error: PySparkException) -> str:
    """Spark's reason for an error, in one line; with the function of the project that is probably meant."""
    reason, _, _ = str(error).strip().partition(";")
    line = re.sub(r"\s+SQLSTATE.*", "", " ".join(reason.split()))
    unknown = re.search(r"UNRESOLVED_ROUTINE.*? routine `(\w+)`", line)
    return f"{line.rstrip('.')}{did_you_mean(unknown[1], DECLARED)}" if unknown else line


def told_with(line: str, values: Mapping[str, Column]) -> Column:
    """A line, followed by the values that it is about, if there are any. The values are texts."""
    each = (F.concat(F.lit(f"{name} = "), F.coalesce(shown(text), F.lit("NULL"))) for name, text in values.items())
    return F.concat_ws(" with ", F.lit(line), F.nullif(F.concat_ws(", ", *each), F.lit("")))


def shown(text: Column) -> Column:
    """A text as a reason shows it, truncated if it is long."""
    return F.when(F.length(text) > SHOWN, F.concat(F.left(text, F.lit(SHOWN)), F.lit("…"))).otherwise(text)
