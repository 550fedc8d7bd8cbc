"""`lakehouse run`: the whole pipeline, once or round after round."""

from functools import partial
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import Every, seconds
from pulsar_lakehouse.cli.extras import require_extra
from pulsar_lakehouse.cli.reconcile import reconcile
from pulsar_lakehouse.cli.refresh import show_refreshed
from pulsar_lakehouse.cli.validate import NEEDED, show_results
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.metrics import Pulse, serve_metrics
from pulsar_lakehouse.jobs.quality import validate_refreshed, validate_tables
from pulsar_lakehouse.jobs.sql_tables import refresh_each
from pulsar_lakehouse.jobs.steps import look_around, open_lake_with, run_all, steps_of_facts, steps_of_state
from pulsar_lakehouse.jobs.streams import keep_up, raise_all
from pulsar_lakehouse.leases.holders import Kind
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def run_command(
    every: Every = "",
    through_sql: Annotated[
        bool,
        typer.Option("--through-sql", help="Then validate new rows, and refresh and validate SQL tables."),
    ] = False,
) -> None:
    """Land, merge and enrich what is new, then reconcile. With --every, keep running without reconciling."""
    if every and through_sql:
        raise ConfigurationError("--through-sql can't be combined with --every: run `lakehouse refresh` beside it")
    interval = seconds(every) if every else None
    settings = load_settings()
    pipeline = pipeline_of(settings)
    sql_tables = pipeline.sql_tables if through_sql else ()
    if through_sql:
        require_extra(*NEEDED)
    if pipeline.topics:
        broker.healthy_endpoint(settings)
    written = [*pipeline.written, *(table.name for table in sql_tables)]
    kind: Kind = "rounds" if every else "step"
    with (
        write_lease(settings, written, kind=kind) as lease,
        open_lake_with(settings, lease, lands=pipeline.topics) as lake,
    ):
        if interval is None:
            refused: list[ConfigurationError] = []
            report.outcomes(run_all(lake, refused=refused), settings)
            reconcile(lake)
            if through_sql:
                show_results(validate_tables(lake, pipeline.suites, only_new=True), settings)
                show_refreshed(refresh_each(lake, sql_tables), settings)
                if sql_tables:
                    show_results(validate_refreshed(lake), settings)
            raise_all(refused)
        else:
            pulse, look = Pulse(), partial(look_around, lake)
            if settings.metrics.port is not None:
                serve_metrics(settings, pulse)
            state, steps = steps_of_state(lake), steps_of_facts(lake)
            keep_up(settings, steps, state=state, every=interval, look=look, lease=lease, beat=pulse.beat)
