"""`lakehouse validate`: evaluate the rules of the tables."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, end_if_nothing_is_new
from pulsar_lakehouse.cli.extras import require_extra
from pulsar_lakehouse.errors import QualityError
from pulsar_lakehouse.expectations.results import Result
from pulsar_lakehouse.jobs.new_data import Step
from pulsar_lakehouse.jobs.quality import validate_tables
from pulsar_lakehouse.jobs.steps import open_lake_between_rounds
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings

NEEDED = ("quality", "great_expectations")
"""The extra, and the package of it, without which nothing can be validated."""

QUOTED = 200
"""Longest quotation in characters, so that several fit in a note."""


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
    known = {suite.table: suite for suite in (*pipeline.suites, *pipeline.sql_suites)}
    suites = chosen(tables, known, lacking="no rules are declared for it; there are rules for") if tables else None
    held = [*pipeline.written, *(suite.table for suite in pipeline.sql_suites)]
    end_if_nothing_is_new(settings, Step.VALIDATE)
    with open_lake_between_rounds(settings, held) as lake:
        show_results(validate_tables(lake, suites, only_new=new), settings)


def show_results(results: list[Result], settings: Settings) -> None:
    """Print and note the results. Raises QualityError if a critical rule fails, or any rule can't run."""
    report.quality(results)
    passed = sum(result.outcome == "passed" for result in results)
    stopping = [result for result in results if result.stops]
    failed = (f"{each.table_name} {each.rule}: {quoted(each.observed)}" for each in stopping)
    report.note([f"quality: {passed:,} of {len(results):,} rules pass", *failed], settings)
    if settings.report.exists():
        report.say(f"Report: {settings.report.as_uri()}")
    if stopping:
        more = f" and {len(stopping) - 3} more" if len(stopping) > 3 else ""
        names = ", ".join(f"{result.table_name} {result.rule}" for result in stopping[:3])
        raise QualityError(f"critical rules do not pass: {names}{more}")


def quoted(text: str) -> str:
    """The beginning of a text that may contain data, as Markdown code: Airflow renders links in notes."""
    return "`" + text[:QUOTED].replace("`", "'") + "`"
