"""SQL that a declaration brings: whatever it is, it fails on a row, not on a batch; and if it is wrong, it is named."""

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
    """The value; NULL on a row on which it ends in an error.

    To be used within a branch of `F.when` alone: what several expressions share, Spark computes before them, and
    outside of this, but not what is in a branch.
    """
    assert SparkContext._active_spark_context is not None
    jvm = SparkContext._active_spark_context._jvm
    expressions = getattr(jvm, _EXPRESSIONS)
    # What Spark's own try_add and the like are made of; there is no function for it.
    return ClassicColumn(expressions.column(getattr(jvm, _TRY)(expressions.expression(value._jc))))


@contextmanager
def naming(rows: DataFrame, declared: Mapping[str, Column]) -> Iterator[None]:
    """Raises ConfigurationError with the name of the first column that Spark can't resolve, if what is within fails."""
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
    """What Spark has against SQL, in one line."""
    reason, _, _ = str(error).strip().partition(";")
    return re.sub(r"\s+SQLSTATE.*", "", " ".join(reason.split()))
