"""Validate tables: evaluate the rules that are declared for them."""

from collections.abc import Sequence
from dataclasses import replace

from pulsar_lakehouse.expectations.results import Result
from pulsar_lakehouse.expectations.suites import Suite
from pulsar_lakehouse.expectations.validation import validate
from pulsar_lakehouse.jobs.rights import personal_columns
from pulsar_lakehouse.jobs.steps import require
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.tables.lake import Lake


def validate_refreshed(lake: Lake) -> list[Result]:
    """Evaluate the rules of new rows of the tables declared in SQL, which have just been refreshed.

    The report stays as the validation of the tables that they are made from has written it.
    """
    suites = [suite for suite in pipeline_of(lake.settings).sql_suites if lake.table(suite.table).exists()]
    return validate_tables(lake, suites, only_new=True, reports=False)


def validate_tables(
    lake: Lake, suites: Sequence[Suite] | None = None, *, only_new: bool, reports: bool = True
) -> list[Result]:
    """Evaluate these suites, by default those of all tables, and write the report.

    The tables must not change meanwhile.
    """
    pipeline = pipeline_of(lake.settings)
    require(lake, [suite.table for suite in pipeline.suites], made_by="run")
    if suites is None:
        suites = [*pipeline.suites, *(each for each in pipeline.sql_suites if lake.table(each.table).exists())]
    require(lake, [suite.table for suite in suites], made_by="refresh")
    personal = personal_columns(pipeline)  # no report has these: anybody may read it
    suites = [replace(suite, personal=personal.get(suite.table, ())) for suite in suites]
    with spinner("Validating"):
        return validate(lake, suites, only_new=only_new, reports=reports)
