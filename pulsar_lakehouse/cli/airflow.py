"""`lakehouse airflow`: a local Airflow that runs the DAGs of this project."""

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.extras import require_extra
from pulsar_lakehouse.engine import control
from pulsar_lakehouse.local import airflow
from pulsar_lakehouse.settings import load_settings

app = typer.Typer(no_args_is_help=True)


@app.command()
def up() -> None:
    """Start Airflow in the background, and print its address and login."""
    require_extra("airflow", "airflow")
    settings = load_settings()
    found = airflow.start(settings)
    report.say(f"Airflow is up: {found.url}, user {found.user}, password {found.password}")
    control.start(settings)


@app.command()
def down() -> None:
    """Stop Airflow and everything that it runs. Its database is kept."""
    settings = load_settings()
    stopped = airflow.stop(settings)
    report.say("Airflow is down." if stopped else "No local Airflow was running.")
    control.stop(settings)
