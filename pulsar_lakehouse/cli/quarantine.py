"""`lakehouse quarantine`: inspect what is held back, and decide what happens to it."""

import getpass
from typing import Annotated

import duckdb
import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import Facts, Note
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.jobs.quarantine import (
    actions_of,
    ask,
    choose,
    left_out_by_reason,
    malformed_by_topic,
    waiting_by_state,
)
from pulsar_lakehouse.jobs.retry_malformed import retry_changes, retry_facts
from pulsar_lakehouse.jobs.steps import open_lake, require
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings

app = typer.Typer(help="Inspect, retry, release or discard what is held back.", no_args_is_help=True)

Reason = Annotated[str, typer.Option(help="Only facts that wait for this reason, such as missing or deleted.")]
Entity = Annotated[str, typer.Option(help="Only facts that wait for this entity, such as users.")]
Key = Annotated[str, typer.Option(help="Only facts that wait for this key.")]
Days = Annotated[float, typer.Option(min=0, help="Only facts that have waited for more than this many days.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


@app.command()
def inspect(facts: Facts = "", reason: Reason = "", entity: Entity = "", key: Key = "", older_than: Days = 0) -> None:
    """Show which facts wait, for what and since when; which messages are malformed, and which rows SQL tables lack."""
    settings = load_settings()
    filtered = bool(facts or reason or entity or key or older_than)
    if filtered or pipeline_of(settings).enrichments:
        chosen = choose(settings, facts, reason=reason, entity=entity, key=key, days=older_than)
        found = waiting_by_state(settings, chosen)
        title = f"Waiting {chosen.enrichment.topic.name}, by each state that they lack"
        report.rows(found.columns, found.fetchall(), title=title)
    if not filtered:
        _show_if_any(malformed_by_topic(settings), title="Malformed messages")
    _show_if_any(left_out_by_reason(settings), title="Rows that SQL tables leave out")


def _show_if_any(found: duckdb.DuckDBPyRelation | None, *, title: str) -> None:
    if found is not None and (rows := found.fetchall()):
        report.rows(found.columns, rows, title=title)


@app.command("release", help="Retry waiting facts in the next batch, including expired ones.")
@app.command("discard", help="Give up waiting facts: the next batch moves them to the discarded ones, where they stay.")
def ask_command(
    context: typer.Context,
    facts: Facts = "",
    reason: Reason = "",
    entity: Entity = "",
    key: Key = "",
    older_than: Days = 0,
    note: Note = "",
    everything: Annotated[bool, typer.Option("--all", help="All waiting facts, without a filter.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Record the action for each chosen fact in `quarantine.actions`, which the enrichment stream reads."""
    action, settings = str(context.info_name), load_settings()
    chosen = choose(settings, facts, reason=reason, entity=entity, key=key, days=older_than)
    name = chosen.enrichment.topic.name
    if not (chosen.values or everything):
        raise LakehouseError(f"{action} which of them? Say --reason, --entity, --key or --older-than, or else --all")
    rows = actions_of(settings, action, chosen, who=getpass.getuser(), note=note)
    if dry_run:
        report.say(f"{len(rows):,} waiting {name} match; nothing was done")
        return
    ask(settings, rows)
    report.say(f"{len(rows):,} waiting {name} marked for {action}: the running or the next `lakehouse enrich` does it")


@app.command()
def retry(
    topic: Annotated[str, typer.Option(help="Only messages of this topic. Default: all topics.")] = "",
    dry_run: DryRun = False,
) -> None:
    """Retry malformed messages after their contract was fixed: those that satisfy it now move to their tables.

    Encrypted messages are decrypted, also in bronze, if their private key is there now.
    """
    settings = load_settings()
    pipeline = pipeline_of(settings)
    known = [each.name for each in pipeline.topics]
    if topic and topic not in known:
        raise LakehouseError(f"{topic}: no such topic; there are {', '.join(known)}")
    entities = [entity for entity in pipeline.entities if topic in ("", entity.name)]
    enrichments = [enrichment for enrichment in pipeline.enrichments if topic in ("", enrichment.topic.name)]
    writes = [*(each.table.name for each in entities), *(each.gold_table for each in enrichments)]
    topics = [each for each in pipeline.topics if topic in ("", each.name)] if settings.pulsar.decryption_keys else []
    with open_lake(settings, writes=[*writes, *(each.bronze_table for each in topics)]) as lake:
        require(lake, [*writes, MALFORMED.name], made_by="run")
        done = [
            *(retry_changes(lake, entity, dry_run=dry_run) for entity in entities),
            *(retry_facts(lake, enrichment, dry_run=dry_run) for enrichment in enrichments),
        ]
    what = "satisfy the contract now; nothing was done" if dry_run else "satisfy the contract now and left quarantine"
    for each in done:
        report.say(f"{each.topic}: {each.sound:,} of {each.malformed:,} malformed messages {what}")
