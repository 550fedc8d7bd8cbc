"""`lakehouse publish`: from gold to topics."""

from functools import partial

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import Every, seconds
from pulsar_lakehouse.jobs.delivery import publishing
from pulsar_lakehouse.jobs.steps import open_lake_with, require
from pulsar_lakehouse.jobs.streams import catch_up, keep_up
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings


def publish_command(every: Every = "") -> None:
    """Publish gold to its topics as keyed messages: all rows first, then each change exactly once."""
    interval = seconds(every) if every else None
    settings = load_settings()
    published = pipeline_of(settings).published
    tables = [enrichment.gold_table for enrichment in published.values()]
    with write_lease(settings, published) as lease, open_lake_with(settings, lease) as lake:
        require(lake, tables, made_by="run")
        streams = publishing(lake, published.values())
        if interval is None:
            report.outcomes(catch_up(settings, streams))
        else:
            keep_up(settings, [streams], every=interval, look=partial(lake.versions, tables), lease=lease)
