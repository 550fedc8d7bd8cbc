"""When a rule passes, by what was measured for it, as expectations of Great Expectations.

Its own expectations ignore NULL, pass on empty tables, and run queries for each table. Here a rule passes only when it
is TRUE, and what is validated is a batch with one row for each rule: what was measured.
"""

from html import escape
from typing import Any, ClassVar

from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import CollapseContent, LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer

from pulsar_lakehouse.errors import LakehouseError


class OfRule(TableMetricProvider):
    """The batch's row for a rule. It raises the error of a rule that could not be evaluated."""

    metric_name = "lakehouse.of_rule"
    value_keys = ("rule",)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(cls, execution_engine, metric_value_kwargs, **_):  # type: ignore[no-untyped-def]  # noqa: N805
        measured = execution_engine.dataframe.loc[metric_value_kwargs["rule"]].to_dict()
        if measured["error"]:
            raise LakehouseError(measured["error"])
        return measured


class _Expect(BatchExpectation):
    """Shows the error of a rule that can't be evaluated, but not its traceback, which would not be escaped."""

    rule: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (OfRule.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("rule",)

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_STATEMENT)
    def _diagnostic_unexpected_statement_renderer(cls, *arguments: Any, **named: Any) -> list[Any]:
        parts = super()._diagnostic_unexpected_statement_renderer(*arguments, **named)
        return [part for part in parts if not isinstance(part, CollapseContent)]

    def _validate(self, metrics, runtime_configuration=None, execution_engine=None):  # type: ignore[no-untyped-def]
        measured = metrics[OfRule.metric_name]
        # The pages of the report show `observed_value`, which can contain data from messages.
        result = {**measured, "observed_value": escape(measured["observed"])}
        return {"success": self._passes(measured), "result": result}

    def _passes(self, measured: dict[str, Any]) -> bool:
        raise NotImplementedError


class ExpectOfRows(_Expect):
    """Passes if no row fails and there are at least `minimum` rows."""

    minimum: int

    success_keys: ClassVar[tuple[str, ...]] = ("rule", "minimum")

    def _passes(self, measured: dict[str, Any]) -> bool:
        return bool(measured["failing"] == 0 and measured["rows"] >= self.minimum)


class ExpectOfTable(_Expect):
    """Passes if what must hold of the table does."""

    def _passes(self, measured: dict[str, Any]) -> bool:
        return measured["holds"] is True
