"""The `lakehouse` command: its subcommands and its exit codes."""

import logging
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

import typer

from pulsar_lakehouse.cli.airflow import app as airflow_app
from pulsar_lakehouse.cli.backfill import backfill_command
from pulsar_lakehouse.cli.broker import down_command, up_command
from pulsar_lakehouse.cli.compare import compare_command
from pulsar_lakehouse.cli.demo import demo_command
from pulsar_lakehouse.cli.enrich import enrich_command
from pulsar_lakehouse.cli.forget import forget_command
from pulsar_lakehouse.cli.init import init_command
from pulsar_lakehouse.cli.land import land_command
from pulsar_lakehouse.cli.lineage import lineage_command
from pulsar_lakehouse.cli.maintain import maintain_command
from pulsar_lakehouse.cli.merge import merge_command
from pulsar_lakehouse.cli.metrics import metrics_command
from pulsar_lakehouse.cli.plan import plan_command
from pulsar_lakehouse.cli.produce import produce_command
from pulsar_lakehouse.cli.publish import publish_command
from pulsar_lakehouse.cli.purge import purge_command
from pulsar_lakehouse.cli.quarantine import app as quarantine_app
from pulsar_lakehouse.cli.rebuild import rebuild_command
from pulsar_lakehouse.cli.reconcile import reconcile_command
from pulsar_lakehouse.cli.refresh import refresh_command
from pulsar_lakehouse.cli.run import run_command
from pulsar_lakehouse.cli.send import send_command
from pulsar_lakehouse.cli.serve import serve_command
from pulsar_lakehouse.cli.snapshot import app as snapshot_app
from pulsar_lakehouse.cli.sql import sql_command
from pulsar_lakehouse.cli.state import state_command
from pulsar_lakehouse.cli.status import status_command
from pulsar_lakehouse.cli.topics import app as topics_app
from pulsar_lakehouse.cli.trace import trace_command
from pulsar_lakehouse.cli.ui import ui_command
from pulsar_lakehouse.cli.validate import validate_command
from pulsar_lakehouse.errors import DeclarationsError, LakehouseError, PermanentError
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent
from pulsar_lakehouse.spark.session import end_of_spark, stop_spark
from pulsar_lakehouse.terminal import one_line, visible

app = typer.Typer(
    name="lakehouse",
    help="Turn Pulsar topics into trusted Delta tables: land, merge, enrich, and reconcile what landed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
# `--help` shows these panels in the order of their first commands.
PROJECT, BROKER, PIPELINE, DATA, AIRFLOW = "Project", "Broker and topics", "Pipeline", "Tables", "Airflow"

app.command("init", rich_help_panel=PROJECT)(init_command)
app.command("up", rich_help_panel=BROKER)(up_command)
app.command("down", rich_help_panel=BROKER)(down_command)
app.command("land", rich_help_panel=PIPELINE)(land_command)
app.command("merge", rich_help_panel=PIPELINE)(merge_command)
app.command("enrich", rich_help_panel=PIPELINE)(enrich_command)
app.command("run", rich_help_panel=PIPELINE)(run_command)
app.command("publish", rich_help_panel=PIPELINE)(publish_command)
app.command("reconcile", rich_help_panel=PIPELINE)(reconcile_command)
app.command("purge", rich_help_panel=DATA)(purge_command)
app.command("maintain", rich_help_panel=DATA)(maintain_command)
# A statement can begin with a comment, which looks like an option.
app.command("sql", rich_help_panel=DATA, context_settings={"ignore_unknown_options": True})(sql_command)
app.command("demo", rich_help_panel=PIPELINE)(demo_command)
app.command("status", rich_help_panel=DATA)(status_command)
app.command("lineage", rich_help_panel=DATA)(lineage_command)
app.command("metrics", rich_help_panel=DATA)(metrics_command)
app.command("backfill", rich_help_panel=DATA)(backfill_command)
app.command("forget", rich_help_panel=DATA)(forget_command)
app.command("rebuild", rich_help_panel=DATA)(rebuild_command)
app.command("plan", rich_help_panel=PIPELINE)(plan_command)
app.command("produce", rich_help_panel=BROKER)(produce_command)
app.command("refresh", rich_help_panel=PIPELINE)(refresh_command)
app.command("send", rich_help_panel=BROKER)(send_command)
app.command("serve", rich_help_panel=DATA)(serve_command)
app.command("state", rich_help_panel=DATA)(state_command)
app.command("trace", rich_help_panel=DATA)(trace_command)
app.command("ui", rich_help_panel=DATA)(ui_command)
app.command("compare", rich_help_panel=PIPELINE)(compare_command)
app.command("validate", rich_help_panel=PIPELINE)(validate_command)
app.add_typer(topics_app, name="topics", rich_help_panel=BROKER)
app.add_typer(quarantine_app, name="quarantine", rich_help_panel=DATA)
app.add_typer(snapshot_app, name="snapshot", rich_help_panel=DATA)
app.add_typer(airflow_app, name="airflow", rich_help_panel=AIRFLOW)


def main() -> NoReturn:
    """Run the command. A failure prints one line on standard error.

    The exit code is 0 for success, 2 for wrong usage, 75 if another process is writing the tables, 78 if a retry would
    fail in the same way, 130 after an interrupt, and 1 for other failures.
    """
    logging.disable()  # py4j would report each call that an interrupt or the end of the JVM cuts off
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    code = 1
    try:
        app()
    except SystemExit as end:  # typer exits with 0, 2 after a usage error, or 130 after KeyboardInterrupt
        code = end.code if isinstance(end.code, int) else 0
    except LakehouseError as error:
        code = error.exit_code
        mistakes = error.mistakes if isinstance(error, DeclarationsError) else [str(error)]
        _complain(*([ended] if (ended := _end_of_spark()) else mistakes))
    except Exception as error:  # the exit code of a JVM that has ended may come a moment later
        code = PermanentError.exit_code if is_permanent(error) else 1
        _complain(_end_of_spark(within=2) or f"{cause_of(error)}{_log_traceback()}")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        stop_spark(keep_classes=code == 0)
        sys.stdout.flush()
        os._exit(code)  # don't wait for threads that wait for the JVM


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _end_of_spark(within: float = 0) -> str | None:
    with suppress(LakehouseError):  # if the settings can't be loaded, Spark was not started
        return end_of_spark(load_settings(), within=within)
    return None


def _complain(*lines: str) -> None:
    for line in lines:
        CONSOLE.say(one_line(f"lakehouse: {line}"), "red")


def _log_traceback() -> str:
    """Log the stack trace; returns a hint for the error line, or nothing if the log can't be written."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # an Airflow task: its output is its log
        CONSOLE.say(traceback.format_exc())
    try:
        path = load_settings().home / "logs" / "lakehouse.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            log.write(visible(traceback.format_exc()))
    except (OSError, LakehouseError):
        return ""
    return f" (details: {path})"
