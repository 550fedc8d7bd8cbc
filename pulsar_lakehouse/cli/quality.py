"""`lakehouse validate`: evaluate the rules of the tables."""

from collections.abc import Sequence
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.extras import require_extra
from pulsar_lakehouse.errors import ConfigurationError, QualityError
from pulsar_lakehouse.expectations.results import Result
from pulsar_lakehouse.expectations.suites import Suite
from pulsar_lakehouse.jobs.steps import open_lake_between_rounds, require
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake

NEEDED = ("quality", "great_expectations")
"""The extra, and the package of it, without which nothing can be validated."""


def validate_command(
    tables: Annotated[list[str] | None, typer.Argument(help="Such as gold.enriched_orders. Default: all.")] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Only rows that arrived since the last validation; once a day, whole tables.")
    ] = False,
) -> None:
    """Evaluate the rules of tables and write a report; exit with 78 if a critical rule fails or any rule can't run."""
    require_extra(*NEEDED)
    settings = load_settings()
    pipeline = pipeline_of(settings)
    known = _suites(pipeline)
    for name in tables or ():
        if name not in known:
            raise ConfigurationError(f"{name}: no rules are declared for it; there are rules for {', '.join(known)}")
    with open_lake_between_rounds(
        settings, [*pipeline.written, *(suite.table for suite in pipeline.sql_suites)]
    ) as lake:
        validate_tables(lake, tables or (), only_new=new)


def validate_tables(lake: Lake, tables: Sequence[str] = (), *, only_new: bool) -> None:
    """Evaluate the rules of these tables, by default of all, show the results, and write the report.

    The tables must not change meanwhile. Raises QualityError if a critical rule fails, or any rule can't run.
    """
    pipeline = pipeline_of(lake.settings)
    require(lake, [suite.table for suite in pipeline.suites], made_by="run")
    require(lake, tables, made_by="refresh")
    known = _suites(pipeline)
    made = [suite for suite in pipeline.sql_suites if lake.table(suite.table).exists()]
    suites = [known[name] for name in dict.fromkeys(tables)] if tables else [*pipeline.suites, *made]
    with spinner("Validating"):
        # Importing this takes two seconds, which other commands should not spend.
        from pulsar_lakehouse.expectations.validation import validate

        results = validate(lake, suites, only_new=only_new)
    _show(results, lake.settings)


def _suites(pipeline: Pipeline) -> dict[str, Suite]:
    return {suite.table: suite for suite in (*pipeline.suites, *pipeline.sql_suites)}


def _show(results: list[Result], settings: Settings) -> None:
    """Show the results. Raises QualityError if a critical rule does not pass."""
    report.quality(results)
    passed = sum(result.outcome == "passed" for result in results)
    failed = (f"{each.table_name} {each.rule}: {report.quoted(each.observed)}" for each in results if each.stops)
    report.note([f"quality: {passed:,} of {len(results):,} rules pass", *failed], settings)
    if settings.report.exists():
        report.say(f"Report: {settings.report.as_uri()}")
    if stopping := [result for result in results if result.stops]:
        more = f" and {len(stopping) - 3} more" if len(stopping) > 3 else ""
        names = ", ".join(f"{result.table_name} {result.rule}" for result in stopping[:3])
        raise QualityError(f"critical rules do not pass: {names}{more}")
