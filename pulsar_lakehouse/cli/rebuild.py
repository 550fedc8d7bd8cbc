"""`lakehouse rebuild`: make tables of silver and gold again from bronze, with today's declarations."""

from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.backfill import show_foreseen
from pulsar_lakehouse.gold.enrichment.backfill import Scope
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.jobs.rebuild import damage_of, fits, made_again, publish_again, rebuild, wanted
from pulsar_lakehouse.jobs.steps import open_lake, require
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings


def rebuild_command(
    tables: Annotated[list[str], typer.Argument(help="Such as silver.users or gold.enriched_orders.")],
    approve: Annotated[bool, typer.Option("--approve", help="Make the changes instead of only showing them.")] = False,
) -> None:
    """Make tables again from bronze, and the enriched facts that depend on them. It heals those with damaged files.

    Without --approve, only say what would change. After a crash, run it again.
    """
    settings = load_settings()
    chosen = wanted(pipeline_of(settings), tables)
    if not approve:
        for entity in chosen.entities:
            report.say(f"{entity.table.name} would be made again from {entity.topic.bronze_table}")
        for facts in chosen.enrichments:
            if chosen.entities:
                report.say(f"{facts.gold_table} would be joined again with it")
            else:
                _preview(settings, facts)
        for table in chosen.in_sql:
            report.say(f"{table.name} would be computed again from {', '.join(table.sources)}")
        return
    with open_lake(settings, writes=chosen.written) as lake:
        for line in rebuild(lake, chosen):
            report.say(line)
    if chosen.sql_tables:
        report.say(f"`lakehouse refresh` brings up to date what SQL makes of them: {', '.join(chosen.sql_tables)}")


def _preview(settings: Settings, facts: Enrichment) -> None:
    with open_lake(settings, writes=[facts.shadow]) as lake:
        require(lake, [facts.gold_table], made_by="run")
        damage = damage_of(settings, made_again(facts))
        if not damage and fits(lake, facts):
            show_foreseen(lake, facts, Scope())
            return
        why = damage or "its keys, day or types differ"
    report.say(f"{facts.gold_table} would be made again from {facts.topic.bronze_table}: {why}")
    if facts.publish_to:
        report.say(publish_again(facts.publish_to))
