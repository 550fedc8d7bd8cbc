"""What a command says when it fails, and its exit code."""

import os
import sys
import traceback
from contextlib import suppress

from pulsar_lakehouse.errors import DeclarationsError, LakehouseError, PermanentError
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.terminal import one_line, visible


def tell(error: Exception) -> int:
    """Print why the command failed, one line on standard error for each reason, and return its exit code."""
    if isinstance(error, LakehouseError):
        mistakes = error.mistakes if isinstance(error, DeclarationsError) else [str(error)]
        _complain(*([ended] if (ended := _end_of_spark()) else mistakes))
        return error.exit_code
    from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent  # which load PySpark

    # The exit code of a JVM that has ended may come a moment later.
    _complain(_end_of_spark(within=2) or f"{cause_of(error)}{_log_traceback()}")
    return PermanentError.exit_code if is_permanent(error) else 1


def _end_of_spark(within: float = 0) -> str | None:
    ended: str | None = None
    if (session := sys.modules.get("pulsar_lakehouse.spark.session")) is not None:  # or else there is no Spark
        with suppress(LakehouseError):  # if the settings can't be loaded, Spark was not started
            ended = session.end_of_spark(load_settings(), within=within)
    return ended


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
