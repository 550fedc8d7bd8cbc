"""`lakehouse ui`: the page, without Airflow."""

import getpass
import time
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.page.server import serve_page
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def ui_command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of the page; 0 takes a free one.")] = 0,
) -> None:
    """Serve a page with the state of the pipeline on this machine, until Ctrl-C. Does not start Spark."""
    settings = load_settings()
    pipeline_of(settings)  # declarations with mistakes are told now
    served = serve_page(settings, port, getpass.getuser())
    report.say(f"The page is at {served.url}, until Ctrl-C")
    while True:
        time.sleep(3600)
