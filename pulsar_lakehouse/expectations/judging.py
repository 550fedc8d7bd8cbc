"""Judge tables by what was measured, as Great Expectations does: this imports it, which takes seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from html import escape
from typing import Any

import pandas as pd  # type: ignore[import-untyped]
from great_expectations.core import ExpectationSuite, ExpectationValidationResult
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.core.validation_definition import ValidationDefinition
from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from great_expectations.expectations.expectation import BatchExpectation

from pulsar_lakehouse.expectations.evaluation import ExpectOfRows, ExpectOfTable
from pulsar_lakehouse.expectations.measuring import Measured
from pulsar_lakehouse.expectations.report import new_context, write_pages
from pulsar_lakehouse.expectations.results import Result
from pulsar_lakehouse.expectations.scopes import WHOLE
from pulsar_lakehouse.expectations.suites import Kind, Rule, Severity
from pulsar_lakehouse.expectations.tables import Validating
from pulsar_lakehouse.settings import Settings

__all__ = ["judge", "write_pages"]


def judge(
    tables: Sequence[Validating], settings: Settings, *, run: str, at: datetime
) -> tuple[list[Result], EphemeralDataContext]:
    """The results of all rules, and the context that has them for the report."""
    context, id = new_context(settings), RunIdentifier(run_name=run, run_time=at)
    return [result for table in tables for result in _judged(table, context, id)], context


def _judged(table: Validating, context: EphemeralDataContext, id: RunIdentifier) -> list[Result]:
    """Whether the rules of a table pass, by what was measured, which is the batch that is validated."""
    suite = table.suite
    minimum = 1 if table.scope == WHOLE and not suite.may_be_empty else 0
    source = context.data_sources.add_pandas(suite.table)
    expected = [_expectation(rule, minimum) for rule in table.found]
    validation = ValidationDefinition(
        name=suite.table,
        data=source.add_dataframe_asset(suite.table).add_batch_definition_whole_dataframe(table.scope),
        suite=context.suites.add(ExpectationSuite(name=suite.table, expectations=expected)),
    )
    context.validation_definitions.add(validation)
    batch = {"dataframe": _batch(table.found)}
    outcome = validation.run(batch_parameters=batch, result_format="SUMMARY", run_id=id)
    status = table.status
    about = {"table_name": suite.table, "version": status.version, "table_rows": status.rows, "scope": table.scope}
    return [_result(each, about) for each in outcome.results]


def _batch(measured: Mapping[Rule, Measured]) -> pd.DataFrame:
    rows = [asdict(each) for each in measured.values()]
    return pd.DataFrame(rows, index=[rule.name for rule in measured], dtype=object)


def _expectation(rule: Rule, minimum: int) -> BatchExpectation:
    about: dict[str, Any] = {
        "rule": rule.name,
        # It becomes part of an HTML page, and of a template in which a dollar sign begins a parameter.
        "description": escape(f"{rule.name.replace('_', ' ')} ({rule.severity}): {rule.declared}").replace("$", "$$"),
        "severity": str(rule.severity),
        "meta": {"rule": rule.name, "severity": str(rule.severity)},
    }
    if rule.kind in (Kind.TABLE, Kind.FIGURES, Kind.TYPES):
        return ExpectOfTable(**about)
    return ExpectOfRows(minimum=minimum, **about)


def _result(done: ExpectationValidationResult, about: Mapping[str, Any]) -> Result:
    config, info = done.expectation_config, done.exception_info or {}
    assert config is not None
    raised = [each for each in ([info] if "raised_exception" in info else info.values()) if each["raised_exception"]]
    error = next((str(each["exception_message"]).split("\n")[0] for each in raised), "")
    return Result(
        **about,
        rule=config.meta["rule"],
        severity=Severity(config.meta["severity"]),
        outcome="error" if error else "passed" if done.success else "failed",
        rows=done.result.get("rows"),
        failing=done.result.get("failing"),
        observed=error or done.result["observed"],
    )
