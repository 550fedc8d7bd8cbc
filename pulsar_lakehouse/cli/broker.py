"""`lakehouse up` and `lakehouse down`: the embedded broker."""

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.engine import control
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.settings import load_settings


def up_command() -> None:
    """Start the embedded broker, a standalone Pulsar, in the background."""
    settings = load_settings()
    found = broker.start(settings)
    report.say(f"The broker is up: {found.service_url}, admin {found.admin_url}")
    control.start(settings)


def down_command() -> None:
    """Stop the embedded broker. Topics and tables are kept."""
    settings = load_settings()
    stopped = broker.stop(settings)
    report.say("The broker is down." if stopped else "No embedded broker was running.")
    control.stop(settings)
