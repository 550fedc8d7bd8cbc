"""The steps behind gold: they refresh the tables declared in SQL, and publish. `jobs.steps` has those before."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sinks.postgres import publish_to_postgres
from pulsar_lakehouse.gold.sinks.topic import changelog_of, publish
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.refresh import FAILED, Refreshed, refresh
from pulsar_lakehouse.jobs.lineage import flows
from pulsar_lakehouse.jobs.lineage.runs import told
from pulsar_lakehouse.jobs.steps import require
from pulsar_lakehouse.jobs.streams import Stream, catch_up
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.tables.lake import Lake


def refreshing(lake: Lake, tables: Sequence[SqlTable], *, full: bool = False) -> Iterator[Refreshed]:
    """Refresh tables declared in SQL and publish what changed in them; yields what each refresh did."""
    names = flows.column_names(pipeline_of(lake.settings))
    for table in tables:
        require(lake, table.sources, made_by="run")
        with spinner(f"refresh {table.name}"):
            with told(lake.settings, flows.refreshed(table, names)) as runs:
                done = refresh(lake, table, full=full)
                if done.kind == FAILED:
                    runs.fail(done.reason)
            if table.postgres:
                with told(lake.settings, flows.sent_to_postgres(table, names)) as runs:
                    runs.complete(publish_to_postgres(lake, table))
        if table.topic:
            catch_up(lake.settings, publishing(lake, [table]))
        yield done


def publishing(lake: Lake, declared: Iterable[Enrichment | SqlTable]) -> list[Stream]:
    broker, names = endpoint(lake.settings), flows.column_names(pipeline_of(lake.settings))
    return [
        Stream(
            f"publish {each.topic}",
            partial(publish, lake, each, broker),
            flows.published(each.table, each.topic, names),
        )
        for each in map(changelog_of, declared)
    ]
