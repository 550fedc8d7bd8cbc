"""Evaluate the suites of tables, keep the results, and write the report."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from typing import Any

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.expectations.results import Result, keep
from pulsar_lakehouse.expectations.suites import Suite
from pulsar_lakehouse.expectations.tables import measured_tables
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.spark.parallel import side_by_side
from pulsar_lakehouse.tables.lake import Lake


def validate(lake: Lake, suites: Sequence[Suite], *, only_new: bool = False, reports: bool = True) -> list[Result]:
    """Evaluate the rules of each suite, keep the results, and write the report if it `reports`.

    If the report can't be written, a line says so.

    With `only_new`, only new rows are validated of tables that tell them apart, passed their last validation, and were
    validated as a whole within the last day. With the change feed, these are all rows of the keys that changed. The
    tables must not change meanwhile.
    """
    started = datetime.now(UTC)
    run = f"{started:%Y-%m-%dT%H:%M:%SZ}"
    # While Spark measures, Great Expectations is imported, which takes seconds.
    importing = partial(import_module, "pulsar_lakehouse.expectations.judging")
    calls: list[Any] = [partial(measured_tables, lake, suites, only_new=only_new, now=started), importing]
    tables, judging = side_by_side(calls)
    results, context = judging.judge(tables, lake.settings, run=run, at=started)
    keep(lake, results, run=run, at=started)
    try:
        if reports:
            judging.write_pages(context, lake.settings)
    except LakehouseError as error:  # the results do not depend on it
        CONSOLE.say(f"no report: {error}")
    return list(results)
