"""`lakehouse engine`: the process that keeps a Spark warm for the commands of this project."""

from typing import Any

import typer
from rich.filesize import decimal

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.engine import control
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.steps import open_lake
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.terminal import duration

app = typer.Typer(no_args_is_help=True)


@app.command()
def up() -> None:
    """Start the engine and its Spark. `lakehouse up` and `lakehouse airflow up` start it, too."""
    settings = load_settings()
    if not control.start(settings):
        raise ConfigurationError(
            "engine.idle_minutes is 0, so there is no engine: set the minutes after which its Spark ends"
        )
    with open_lake(settings, writes=[]):
        pass  # it borrows a Spark, which the engine starts
    minutes = settings.engine.idle_minutes
    report.say(f"The engine is up. Its Spark ends {minutes:g} min after the last command that has used it.")


@app.command()
def down() -> None:
    """End the engine. A command that has borrowed its Spark may go on to its end."""
    found = control.stop(load_settings())
    if found is None:
        report.say("No engine was running.")
    elif borrower := found["borrower"]:
        report.say(f"The engine ends when {_named(borrower)} does.")
    else:
        report.say("The engine is down.")


@app.command()
def status() -> None:
    """Say whether the engine runs, who has its Spark, and how much memory that takes."""
    found = control.state(load_settings())
    if found is None:
        report.say("No engine is running: each command starts its own Spark.")
        return
    report.say(f"The engine is up: pid {found['pid']}, {_use(found)}")
    if jvm := found["jvm"]:
        report.say(f"Its Spark is pid {jvm['pid']}: {decimal(jvm['bytes'])} of memory, lent {jvm['loans']:,} times")
    if python := found["python"]:
        report.say(f"Python with its libraries: {decimal(python)} of memory")


def _use(found: dict[str, Any]) -> str:
    if borrower := found["borrower"]:
        return f"lent to {_named(borrower)}"
    return f"idle for {duration(found['idle'])}"


def _named(borrower: dict[str, Any]) -> str:
    return f"pid {borrower['pid']} (`lakehouse {borrower['command']}`)"
