"""The `lakehouse` command: its subcommands and its exit codes."""

import logging
import os
import re
import signal
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from pulsar_lakehouse.cli.late_commands import Late, group_of

# `--help` shows these panels in the order of their first commands.
PROJECT, BROKER, PIPELINE, DATA, AIRFLOW = "Project", "Broker and topics", "Pipeline", "Tables", "Airflow"

COMMANDS = {
    "init": Late(PROJECT, "init", "init_command"),
    "up": Late(BROKER, "broker", "up_command"),
    "down": Late(BROKER, "broker", "down_command"),
    "land": Late(PIPELINE, "land", "land_command"),
    "merge": Late(PIPELINE, "merge", "merge_command"),
    "enrich": Late(PIPELINE, "enrich", "enrich_command"),
    "run": Late(PIPELINE, "run", "run_command"),
    "publish": Late(PIPELINE, "publish", "publish_command"),
    "reconcile": Late(PIPELINE, "reconcile", "reconcile_command"),
    "purge": Late(DATA, "purge", "purge_command"),
    "check": Late(DATA, "check", "check_command"),
    "maintain": Late(DATA, "maintain", "maintain_command"),
    # A statement can begin with a comment, which looks like an option.
    "sql": Late(DATA, "sql", "sql_command", settings={"ignore_unknown_options": True}),
    "demo": Late(PIPELINE, "demo", "demo_command"),
    "status": Late(DATA, "status", "status_command"),
    "lineage": Late(DATA, "lineage", "lineage_command"),
    "metrics": Late(DATA, "metrics", "metrics_command"),
    "diff": Late(DATA, "diff", "diff_command"),
    "audit": Late(DATA, "audit", "audit_command"),
    "backfill": Late(DATA, "backfill", "backfill_command"),
    "forget": Late(DATA, "forget", "forget_command"),
    "rebuild": Late(DATA, "rebuild", "rebuild_command"),
    "plan": Late(PIPELINE, "plan", "plan_command"),
    "produce": Late(BROKER, "produce", "produce_command"),
    "refresh": Late(PIPELINE, "refresh", "refresh_command"),
    "send": Late(BROKER, "send", "send_command"),
    "serve": Late(DATA, "serve", "serve_command"),
    "state": Late(DATA, "state", "state_command"),
    "trace": Late(DATA, "trace", "trace_command"),
    "ui": Late(DATA, "ui", "ui_command"),
    "compare": Late(PIPELINE, "compare", "compare_command"),
    "wait": Late(DATA, "wait", "wait_command"),
    "validate": Late(PIPELINE, "validate", "validate_command"),
    "topics": Late(BROKER, "topics", "app", help="Create the topics of the pipeline."),
    "quarantine": Late(DATA, "quarantine", "app", help="Inspect, retry, release or discard what is held back."),
    "snapshot": Late(DATA, "snapshot", "app", help="Name the present versions of all tables, and go back to them."),
    "engine": Late(AIRFLOW, "engine", "app", help="Keep a Spark warm, and lend it to one command at a time."),
    "airflow": Late(AIRFLOW, "airflow", "app", help="Start and stop a local Airflow that schedules the pipeline."),
}

ACTS = re.compile(
    r"(backfill|forget|purge|rebuild|quarantine (release|discard|retry)|snapshot (create|restore|drop))\b"
    r"|.* --(accept-loss|approve)\b"
)
"""Matches commands by which people change what the pipeline would do by itself."""

OUTCOME_FILE = "LAKEHOUSE_RUN__OUTCOME_FILE"

app = typer.Typer(
    name="lakehouse",
    cls=group_of(COMMANDS),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"lakehouse {version('pulsar-lakehouse')}\n")
        raise typer.Exit


@app.callback()
def lakehouse(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn Pulsar topics into trusted Delta tables: land, merge, enrich, and reconcile what landed."""


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
        _note()
        app(prog_name="lakehouse")
    except SystemExit as end:  # typer exits with 0, 2 after a usage error, or 130 after KeyboardInterrupt
        code = end.code if isinstance(end.code, int) else 0
        if code == 0:
            _tell_tables()
    except Exception as error:
        from pulsar_lakehouse.cli import failures  # which commands that end well don't need

        code = failures.tell(error)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if (session := sys.modules.get("pulsar_lakehouse.spark.session")) is not None:  # or else there is no Spark
            session.stop_spark(is_well=code == 0)
        sys.stdout.flush()
        os._exit(code)  # don't wait for threads that wait for the JVM


def _note() -> None:
    if ACTS.match(" ".join(sys.argv[1:])) and "--help" not in sys.argv:
        from pulsar_lakehouse.audit import command_line, note
        from pulsar_lakehouse.settings import load_settings

        note(load_settings(), command_line())


def _tell_tables() -> None:
    if OUTCOME_FILE in os.environ:  # or else the settings need not be loaded here
        from pulsar_lakehouse.cli import report
        from pulsar_lakehouse.settings import load_settings

        with suppress(Exception):  # whatever is wrong with a table, the command is done
            report.tell_tables(load_settings())


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
