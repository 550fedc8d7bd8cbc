"""Measures the rules of tables: those of all tables of which little is read by one query, the others table by table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain

from pyspark.sql import DataFrame

from pulsar_lakehouse.expectations.measuring import Measured, OfFigures, OfRows, measure_figures, measure_rows
from pulsar_lakehouse.expectations.results import figures, figures_of, last_validated
from pulsar_lakehouse.expectations.scopes import NOTHING, WHOLE, rows_of, scope_of
from pulsar_lakehouse.expectations.suites import Kind, Rule, Suite, each_row
from pulsar_lakehouse.inspection.table_status import TableStatus, table_statuses
from pulsar_lakehouse.limits import VALIDATED_ROWS
from pulsar_lakehouse.spark.functions import register
from pulsar_lakehouse.spark.parallel import side_by_side
from pulsar_lakehouse.spark.session import LITTLE_DATA
from pulsar_lakehouse.tables.lake import Lake

AT_ONCE = 3
"""Queries that run side by side."""

COUNTED = each_row("is_counted", "true")
"""What is measured of each table's rows beside its rules: how many they are."""


@dataclass(frozen=True, kw_only=True)
class Validating:
    """A table that is validated: which of its rows, and what was found for each of the rules that are evaluated."""

    suite: Suite
    status: TableStatus
    scope: str
    found: Mapping[Rule, Measured]


def measured_tables(lake: Lake, suites: Sequence[Suite], *, only_new: bool, now: datetime) -> list[Validating]:
    """Measure the rules of each suite. Of a table with nothing new, these are those on figures."""
    state = _State(lake, now if only_new else None)
    frames = dict(zip(suites, side_by_side([partial(state.rows, suite) for suite in suites]), strict=True))
    found = state.of_rows({suite: rows for suite, rows in frames.items() if rows is not None})
    found |= state.of_figures(
        suites, {table: each.rows or 0 for (table, rule), each in found.items() if rule == COUNTED}
    )
    return [
        Validating(
            suite=suite,
            status=state.statuses[suite.table],
            scope=state.scope(suite),
            found={rule: found[suite.table, rule] for rule in suite.rules if (suite.table, rule) in found},
        )
        for suite in suites
    ]


class _State:
    """What is known of the tables before they are read. With a time, only new rows are."""

    def __init__(self, lake: Lake, new_at: datetime | None) -> None:
        self.lake, self.new_at, settings = lake, new_at, lake.settings
        self.quick = replace(lake, spark=lake.spark.newSession())
        """For tables of which little is read."""
        register(self.quick.spark)
        for setting, value in LITTLE_DATA.items():
            self.quick.spark.conf.set(setting, value)
        register(self.quick.spark)
        self.statuses = {status.name: status for status in table_statuses(settings)}
        self.known, self.before = figures(settings, self.statuses.values()), last_validated(settings)

    def scope(self, suite: Suite) -> str:
        if self.new_at is None:
            return WHOLE
        version = self.statuses[suite.table].version
        return scope_of(suite, self.quick, self.before.get(suite.table), version, now=self.new_at)

    def rows(self, suite: Suite) -> DataFrame | None:
        """The rows that are validated; None if nothing is new."""
        if (scope := self.scope(suite)) == NOTHING:
            return None
        read = (suite.table, *(rule.to for rule in suite.rules if rule.to in self.statuses))
        is_little = max(self.statuses[table].rows for table in read) <= VALIDATED_ROWS
        since = None if scope == WHOLE else self.before[suite.table]
        return rows_of(suite, since, quick=self.quick, lake=self.quick if is_little else self.lake)

    def figures(self, suite: Suite) -> Mapping[str, object]:
        return figures_of(suite.table, self.known, self.before.get(suite.table))

    def of_rows(self, frames: Mapping[Suite, DataFrame]) -> dict[tuple[str, Rule], Measured]:
        asked = {
            suite: [
                OfRows(
                    table=suite.table,
                    rule=rule,
                    rows=rows,
                    key=suite.key,
                    personal=suite.personal,
                    figures=self.figures(suite),
                )
                for rule in (COUNTED, *suite.rules)
                if rule.kind is not Kind.FIGURES
            ]
            for suite, rows in frames.items()
        }
        little = [suite for suite, rows in frames.items() if rows.sparkSession is self.quick.spark]
        together = [each for suite in little for each in asked[suite]]
        queries = [together, *(rules for suite, rules in asked.items() if suite not in little)]
        found = side_by_side([partial(measure_rows, rules) for rules in queries], at_once=AT_ONCE)
        rules = chain.from_iterable(queries)
        return {(a.table, a.rule): each for a, each in zip(rules, chain.from_iterable(found), strict=True)}

    def of_figures(self, suites: Sequence[Suite], rows: Mapping[str, int]) -> dict[tuple[str, Rule], Measured]:
        asked = [
            OfFigures(table=suite.table, rule=rule, figures=self.figures(suite), rows=rows.get(suite.table, 0))
            for suite in suites
            for rule in suite.rules
            if rule.kind is Kind.FIGURES
        ]
        found = measure_figures(self.quick.spark, asked)
        return {(a.table, a.rule): each for a, each in zip(asked, found, strict=True)}
