"""Evaluate the suites of tables, keep the results, and write the report."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from html import escape
from threading import Lock
from typing import Any

from great_expectations.core import ExpectationSuite, ExpectationValidationResult
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.core.validation_definition import ValidationDefinition
from great_expectations.expectations.expectation import BatchExpectation
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.expectations.evaluation import ExpectEachRow, ExpectOfTable, ExpectUnique
from pulsar_lakehouse.expectations.report import new_context, write_pages
from pulsar_lakehouse.expectations.results import Figures, Result, Validated, figures, figures_of, keep, last_validated
from pulsar_lakehouse.expectations.suites import CHANGE_FEED, Kind, Rule, Severity, Suite, with_figures
from pulsar_lakehouse.inspection.table_status import table_statuses
from pulsar_lakehouse.limits import VALIDATED_ROWS
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.spark.frames import of_keys
from pulsar_lakehouse.spark.parallel import side_by_side
from pulsar_lakehouse.spark.session import LITTLE_DATA
from pulsar_lakehouse.tables.lake import Lake

WHOLE_AFTER = timedelta(days=1)
"""How long only new rows are validated, until the whole table is validated again."""

AT_ONCE = 3
"""Tables that are validated side by side: small ones take most of their time for planning."""

WHOLE, NEW, NOTHING = "whole", "new", "nothing new"


def validate(lake: Lake, suites: Sequence[Suite], *, only_new: bool = False, reports: bool = True) -> list[Result]:
    """Evaluate the rules of each suite, keep the results, and write the report if it `reports`.

    If the report can't be written, a line says so.

    With `only_new`, only new rows are validated of tables that tell them apart, passed their last validation, and were
    validated as a whole within the last day. With the change feed, these are all rows of the keys that changed. The
    tables must not change meanwhile.
    """
    started = datetime.now(UTC)
    name = f"{started:%Y-%m-%dT%H:%M:%SZ}"
    run = _Run(lake, RunIdentifier(run_name=name, run_time=started), started)
    evaluated = side_by_side([partial(run.evaluate, suite, only_new) for suite in suites], at_once=AT_ONCE)
    results = [result for each in evaluated for result in each]
    keep(lake, results, run=name, at=started)
    try:
        if reports:
            write_pages(run.context, lake.settings)
    except LakehouseError as error:  # the results do not depend on it
        CONSOLE.say(f"no report: {error}")
    return results


class _Run:
    """A validation, with what was known of the tables before it."""

    def __init__(self, lake: Lake, id: RunIdentifier, started: datetime) -> None:
        self.lake, self.id, self.started = lake, id, started
        self.quick = Lake(lake.spark.newSession(), lake.settings)
        """For tables of which little is read."""
        for setting, value in LITTLE_DATA.items():
            self.quick.spark.conf.set(setting, value)
        self.context, self.preparing = new_context(lake.settings), Lock()
        self.statuses = {status.name: status for status in table_statuses(lake.settings)}
        self.known, self.before = figures(lake.settings, self.statuses.values()), last_validated(lake.settings)

    def evaluate(self, suite: Suite, only_new: bool) -> list[Result]:
        last, status = self.before.get(suite.table), self.statuses[suite.table]
        scope = _scope(suite, last, status.version, self.started) if only_new else WHOLE
        if last is not None and scope == NEW and suite.arrives == CHANGE_FEED:
            scope = NEW if self.lake.table(suite.table).has_changes_since(last.version) else WHOLE
        rules = [rule for rule in suite.rules if scope != NOTHING or rule.kind in (Kind.TABLE, Kind.TYPES)]
        own = figures_of(suite.table, self.known, last)
        read = (status.rows, *(self.statuses[rule.to].rows for rule in rules if rule.to in self.statuses))
        lake = self.quick if scope == NOTHING or max(read) <= VALIDATED_ROWS else self.lake
        rows = _with_known(_rows(lake, suite, scope, last, status.version), lake, rules)
        minimum = 1 if scope == WHOLE and not suite.may_be_empty else 0
        validation = self._prepare(suite, scope, [_expectation(rule, suite, own, minimum) for rule in rules])
        outcome = validation.run(batch_parameters={"dataframe": rows}, result_format="SUMMARY", run_id=self.id)
        about = {"table_name": suite.table, "version": status.version, "table_rows": status.rows, "scope": scope}
        return [_result(each, about) for each in outcome.results]

    def _prepare(self, suite: Suite, scope: str, expected: list[BatchExpectation]) -> ValidationDefinition:
        with self.preparing:
            # A source has one batch at a time, so each table has its own.
            source = self.context.data_sources.add_spark(suite.table, persist=False)
            validation = ValidationDefinition(
                name=suite.table,
                data=source.add_dataframe_asset(suite.table).add_batch_definition_whole_dataframe(scope),
                suite=self.context.suites.add(ExpectationSuite(name=suite.table, expectations=expected)),
            )
            self.context.validation_definitions.add(validation)
        return validation


def _scope(suite: Suite, last: Validated | None, version: int, now: datetime) -> str:
    if last is None or last.whole_at is None or last.whole_at < now - WHOLE_AFTER or last.version > version:
        return WHOLE
    if last.version == version:
        return NOTHING
    return NEW if suite.arrives else WHOLE


def _rows(lake: Lake, suite: Suite, scope: str, last: Validated | None, version: int) -> DataFrame:
    table = lake.table(suite.table)
    rows = table.read()
    if last is None or scope == WHOLE:
        return rows
    if scope == NOTHING:
        return rows.where("false")
    if suite.arrives != CHANGE_FEED:
        return rows.where(F.col(str(suite.arrives)) > F.lit(last.at))
    changes = table.changes(last.version + 1, version).where("_change_type IN ('insert', 'update_postimage')")
    # The rows of changed keys as they are now: a change may be outdated by another, or repeat an older key.
    return of_keys(rows, changes.select(*suite.key))


def _with_known(rows: DataFrame, lake: Lake, rules: Sequence[Rule]) -> DataFrame:
    """Adds a column for each reference, named like its rule: TRUE if the value is known."""
    for rule in rules:
        if rule.kind is Kind.REFERENCE:
            history = lake.table(f"{rule.to}_history")
            known = history.read().where("valid_until IS NULL") if history.exists() else lake.table(rule.to).read()
            if rule.may_be_truncated and history.exists():
                known = history.read().dropDuplicates([each.rpartition(".")[2] for each in rule.holds.split(", ")])
            keys = {f"_key{place}": column for place, column in enumerate(rule.holds.split(", "))}
            of_row = (F.col(column.rpartition(".")[2]).alias(key) for key, column in keys.items())
            same = [F.col(column) == F.col(key) for key, column in keys.items()]
            rows = rows.join(known.select(*of_row, F.lit(True).alias(rule.name)), on=same, how="left").drop(*keys)
    return rows


def _expectation(rule: Rule, suite: Suite, figures: Figures, minimum: int) -> BatchExpectation:
    about: dict[str, Any] = {
        # It becomes part of an HTML page, and of a template in which a dollar sign begins a parameter.
        "description": escape(f"{rule.name.replace('_', ' ')} ({rule.severity}): {rule.holds}").replace("$", "$$"),
        "severity": str(rule.severity),
        "meta": {"rule": rule.name, "severity": str(rule.severity)},
    }
    match rule.kind:
        case Kind.ROW:
            return ExpectEachRow(holds=rule.holds, key=list(suite.key), minimum=minimum, **about)
        case Kind.REFERENCE:
            columns = rule.holds.split(", ")
            holds = f"{rule.name} OR {columns[0]} IS NULL" if rule.may_be_null else rule.name
            return ExpectEachRow(holds=holds, key=[*suite.key, *columns], minimum=minimum, **about)
        case Kind.KEY:
            return ExpectUnique(columns=rule.holds.split(", "), minimum=minimum, **about)
        case Kind.TABLE:
            holds = with_figures(rule.holds, figures)
            shows = with_figures(rule.shows, figures) or "'" + holds.replace("'", "") + "'"
            return ExpectOfTable(holds=holds, shows=shows, **about)
        case Kind.TYPES:
            return ExpectOfTable(holds=rule.sql_of_types, shows=f"'{rule.holds}'", **about)


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
