"""`lakehouse metrics`: the numbers of `lakehouse status` in Prometheus' format."""

import time
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.metrics import Metrics, serve_metrics
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.settings import load_settings


def metrics_command(
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve them at `metrics.host` and `metrics.port`, until Ctrl-C.")
    ] = False,
) -> None:
    """Print metrics in Prometheus' text format, or serve them. Does not start Spark."""
    settings = load_settings()
    if not serve:
        report.OUT.file.write(Metrics(settings).text().decode())
        return
    serve_metrics(settings)
    CONSOLE.say(f"Metrics at http://{settings.metrics.host}:{settings.metrics.port}/metrics; Ctrl-C ends it")
    while True:
        time.sleep(3600)
