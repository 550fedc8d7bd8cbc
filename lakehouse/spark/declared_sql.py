"""Evaluates SQL from declarations: an error affects one row, not the batch, and wrong SQL is reported by its name."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.column import Column as ClassicColumn

from lakehouse.errors import ConfigurationError

_EXPRESSIONS = "org.apache.spark.sql.classic.ExpressionUtils"
_TRY = "org.apache.spark.sql.catalyst.expressions.TryEval"


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


@contextmanager
def naming(rows: DataFrame, declared: Mapping[str, Column]) -> Iterator[None]:
    """If the block raises AnalysisException, raise ConfigurationError for the first column that Spark can't resolve.

    `declared` maps the names that its message uses to the columns, which are resolved over `rows`.
    """
    try:
        yield
    except AnalysisException:
        for name, column in declared.items():
            try:
                rows.select("*", column)
            except AnalysisException as error:
                raise ConfigurationError(f"{name}: {reason_of(error)}") from None
        raise


def reason_of(error: PySparkException) -> str:
    """Spark's reason for an error, in one line."""
    reason, _, _ = str(error).strip().partition(";")
    return re.sub(r"\s+SQLSTATE.*", "", " ".join(reason.split()))
