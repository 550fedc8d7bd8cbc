"""`lakehouse maintain`: fewer and larger files."""

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.settings import load_settings


def maintain_command() -> None:
    """Remove files that no table version of the last week needs, then compact the tables, even while a stream runs."""
    settings = load_settings()
    for done in maintain(settings):
        report.say(str(done))
        if done.removed or done.compacted or done.failed:
            report.note([done], settings)
