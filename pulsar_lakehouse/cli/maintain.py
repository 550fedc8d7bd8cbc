"""`lakehouse maintain`: fewer and larger files."""

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.settings import load_settings


def maintain_command() -> None:
    """Remove files that no table version of the last week needs, then compact the tables, even while a stream runs."""
    for done in maintain(load_settings()):
        report.say(str(done))
