"""`lakehouse airflow`: a local Airflow that runs the DAGs of this project."""

import typer

from cli import report
from dags.local import airflow
from lakehouse.settings import load_settings

app = typer.Typer(help="A local Airflow that schedules the pipeline.", no_args_is_help=True)


@app.command()
def up() -> None:
    """Start Airflow and leave it running; says where it is and how to log in."""
    found = airflow.start(load_settings())
    report.say(f"Airflow is up: {found.url}, user {found.user}, password {found.password}")


@app.command()
def down() -> None:
    """Stop Airflow, and what it runs. What it has in its database stays."""
    stopped = airflow.stop(load_settings())
    report.say("Airflow is down." if stopped else "No local Airflow was running.")
