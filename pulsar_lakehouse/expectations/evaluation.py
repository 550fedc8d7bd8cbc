"""How Great Expectations evaluates rules: what it measures on Spark, and when a rule passes.

Its own expectations ignore NULL, pass on empty tables, and run a query each for examples, even if no row fails. Here a
rule passes only when it is TRUE. Rules are measured by aggregates, which are computed in one pass over the table. If
that pass fails, each aggregate is computed alone, so that only the broken rule can't be evaluated.
"""

import json
import re
from html import escape
from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import CollapseContent, LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.spark.declared_sql import try_eval

_aggregate = metric_partial(
    engine=SparkDFExecutionEngine,
    partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
    domain_type=MetricDomainTypes.TABLE,
)
ROWS = "table.row_count"


class Failing(TableMetricProvider):
    """The number of rows for which an SQL condition over their columns is not TRUE."""

    metric_name = "lakehouse.failing"
    value_keys = ("holds",)

    @_aggregate
    def _spark(cls, metric_domain_kwargs, metric_value_kwargs, **_):  # type: ignore[no-untyped-def]  # noqa: N805
        return F.count_if(_fails(metric_value_kwargs["holds"])), metric_domain_kwargs, {}


class Measured(TableMetricProvider):
    """JSON with the value of an SQL condition over aggregates, and of the SQL that the report shows."""

    metric_name = "lakehouse.measured"
    value_keys = ("holds", "shows")

    @_aggregate
    def _spark(cls, metric_domain_kwargs, metric_value_kwargs, **_):  # type: ignore[no-untyped-def]  # noqa: N805
        holds, shows = (F.expr(metric_value_kwargs[key]) for key in ("holds", "shows"))
        return F.to_json(F.struct(holds.alias("holds"), shows.cast("string").alias("shown"))), metric_domain_kwargs, {}


class Different(TableMetricProvider):
    """The number of different combinations of values in some columns, including NULL."""

    metric_name = "lakehouse.different"
    value_keys = ("columns",)

    @_aggregate
    def _spark(cls, metric_domain_kwargs, metric_value_kwargs, **_):  # type: ignore[no-untyped-def]  # noqa: N805
        return F.count_distinct(F.struct(*metric_value_kwargs["columns"])), metric_domain_kwargs, {}


def _fails(holds: str) -> Column:
    """Whether an SQL condition is not TRUE for a row: it is FALSE or NULL, or ends in an error."""
    return ~F.coalesce(try_eval(F.expr(holds)), F.lit(False))


def _shown(observed: str) -> dict[str, str]:
    """What was observed, as it is and escaped for the pages of the report: it can contain data from messages."""
    return {"observed": observed, "observed_value": escape(observed)}


class _Expect(BatchExpectation):
    """Shows the error of a rule that can't be evaluated, but not its traceback, which would not be escaped."""

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_STATEMENT)
    def _diagnostic_unexpected_statement_renderer(cls, *arguments: Any, **named: Any) -> list[Any]:
        parts = super()._diagnostic_unexpected_statement_renderer(*arguments, **named)
        return [part for part in parts if not isinstance(part, CollapseContent)]


class _ExpectOfRows(_Expect):
    """Passes if no row fails and there are at least `minimum` rows."""

    minimum: int

    def _outcome(self, rows: int, failing: int, examples: DataFrame) -> dict[str, Any]:
        observed = f"all {rows:,} rows" if rows else "no rows"
        if failing and (example := examples.select(F.to_json(F.struct("*"))).first()):
            observed = f"{failing:,} of {rows:,} rows, such as {example[0]}"
        result = {**_shown(observed), "rows": rows, "failing": failing}
        return {"success": failing == 0 and rows >= self.minimum, "result": result}


class ExpectEachRow(_ExpectOfRows):
    """Passes if SQL is TRUE for each row. A failing row is shown with its `key` and the columns that the SQL names."""

    holds: str
    key: list[str]

    metric_dependencies: ClassVar[tuple[str, ...]] = (ROWS, Failing.metric_name)
    success_keys: ClassVar[tuple[str, ...]] = ("holds", "minimum")

    def _validate(self, metrics, runtime_configuration=None, execution_engine=None):  # type: ignore[no-untyped-def]
        frame = execution_engine.dataframe
        named = re.findall(r"[a-z_]\w*(?:\.[a-z_]\w*)*", self.holds)
        shown = dict.fromkeys(name for name in (*self.key, *named) if name.partition(".")[0] in frame.columns)
        examples = frame.where(_fails(self.holds)).select(*(F.col(name).alias(name) for name in shown))
        return self._outcome(metrics[ROWS], metrics[Failing.metric_name], examples)


class ExpectUnique(_ExpectOfRows):
    """Passes if no two rows are equal in all `columns`. Of equal rows, all but one count as failing."""

    columns: list[str]

    metric_dependencies: ClassVar[tuple[str, ...]] = (ROWS, Different.metric_name)
    success_keys: ClassVar[tuple[str, ...]] = ("columns", "minimum")

    def _validate(self, metrics, runtime_configuration=None, execution_engine=None):  # type: ignore[no-untyped-def]
        counted = execution_engine.dataframe.groupBy(*self.columns).count()
        failing = metrics[ROWS] - metrics[Different.metric_name]
        return self._outcome(metrics[ROWS], failing, counted.where("count > 1").drop("count"))


class ExpectOfTable(_Expect):
    """Passes if SQL over aggregates is TRUE. `shows` is SQL for the text that the report shows."""

    holds: str
    shows: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (ROWS, Measured.metric_name)
    success_keys: ClassVar[tuple[str, ...]] = ("holds", "shows")

    def _validate(self, metrics, runtime_configuration=None, execution_engine=None):  # type: ignore[no-untyped-def]
        measured = json.loads(metrics[Measured.metric_name])
        result = {**_shown(measured.get("shown", "NULL")), "rows": metrics[ROWS]}
        return {"success": measured.get("holds") is True, "result": result}
