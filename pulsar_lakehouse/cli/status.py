"""`lakehouse status`: what is wrong, and then the numbers of topics, tables, quarantine and steps."""

import time
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.jobs.pipeline_status import Status, status_of
from pulsar_lakehouse.jobs.retention import states
from pulsar_lakehouse.settings import load_settings


def status_command(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks with --watch.")] = 5.0,
) -> None:
    """Show what is wrong, with what to do. Then the numbers of topics, tables, quarantine, steps and reconciliation."""
    settings = load_settings()

    def shown(found: Status) -> list[Text | Table]:
        return report.status(found, states(settings) if found.tables else ())

    if not watch:
        found = status_of(settings)
        report.show(shown(found))
        if found.unreadable:
            raise LakehouseError(found.unreadable)
        return
    now = Group(*shown(status_of(settings)))
    with Live(now, console=report.OUT, screen=report.OUT.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(Group(*shown(status_of(settings))), refresh=True)
