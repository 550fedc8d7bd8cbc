"""`lakehouse quarantine`: inspect what is held back, and decide what happens to it."""

import getpass
from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

import duckdb
import typer

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.arguments import Facts, Note
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.jobs.quarantine import (
    actions_of,
    ask,
    choose,
    left_out_by_reason,
    malformed_by_reason,
    waiting_by_state,
)
from pulsar_lakehouse.jobs.retry_malformed import release_moved, retry_changes, retry_facts
from pulsar_lakehouse.jobs.steps import decodings, open_lake, require
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings

app = typer.Typer(no_args_is_help=True)

Reason = Annotated[str, typer.Option(help="Only facts that wait for this reason, such as missing or deleted.")]
Entity = Annotated[str, typer.Option(help="Only facts that wait for this entity, such as users.")]
Key = Annotated[str, typer.Option(help="Only facts that wait for this key.")]
Days = Annotated[float, typer.Option(min=0, help="Only facts that have waited for more than this many days.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


@app.command()
def inspect(
    facts: Facts = "",
    reason: Reason = "",
    entity: Entity = "",
    key: Key = "",
    older_than: Days = 0,
    as_json: AsJson = False,
) -> None:
    """Show which facts wait, for what and since when; which messages are malformed, and which rows SQL tables lack."""
    settings = load_settings()
    reader = operator_of(settings)
    filtered = bool(facts or reason or entity or key or older_than)
    waiting = []
    if filtered or pipeline_of(settings).enrichments:
        chosen = choose(settings, facts, reason=reason, entity=entity, key=key, days=older_than)
        rows, topic = _rows(waiting_by_state(settings, chosen)), chosen.enrichment.topic.name
        waiting = [shapes.Waiting(topic=topic, **row) for row in rows]
    malformed = [] if filtered else [shapes.Malformed(**row) for row in _rows(malformed_by_reason(settings, reader))]
    sql_rows = [shapes.SqlRows(**row) for row in _rows(left_out_by_reason(settings, reader))]
    found = shapes.Quarantine(waiting=waiting, malformed=malformed, sql_rows=sql_rows)
    if as_json:
        shapes.show(found)
    else:
        _show(found)


def _rows(found: duckdb.DuckDBPyRelation | None) -> list[dict[str, Any]]:
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] if found is not None else []


def _show(found: shapes.Quarantine) -> None:
    for topic, waiting in groupby(found.waiting, key=lambda each: each.topic):
        columns = ["reason", "entity", topic, "oldest", "keys", "such as", "tried", "since", "expired"]
        rows = [list(asdict(each).values())[1:] for each in waiting]
        report.rows(columns, rows, title=f"Waiting {topic}, by each state that they lack")
    for title, those in (("Malformed messages", found.malformed), ("Rows that SQL tables leave out", found.sql_rows)):
        if those:
            report.rows(list(asdict(those[0])), [list(asdict(each).values()) for each in those], title=title)


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
    known = [each.name for each in pipeline.landed]
    if topic and topic not in known:
        raise LakehouseError(f"{topic}: no such topic; there are {', '.join(known)}")
    entities = [entity for entity in pipeline.entities if topic in ("", entity.name)]
    enrichments = [enrichment for enrichment in pipeline.enrichments if topic in ("", enrichment.topic.name)]
    writes = [*(each.table.name for each in entities), *(each.gold_table for each in enrichments)]
    bronze = {each.bronze_table for each in pipeline.landed if topic in ("", each.name)}
    can_decrypt = bool(settings.pulsar.decryption_keys)
    topics = [each for each in pipeline.topics if can_decrypt and each.bronze_table in bronze]
    with open_lake(settings, writes=[*writes, *(each.bronze_table for each in topics)]) as lake:
        require(lake, [*writes, MALFORMED.name], made_by="run")
        kinds = {
            each.bronze_table: decodings(lake, each) for each in pipeline.with_kinds if each.bronze_table in bronze
        }
        done = [
            *(
                retry_changes(lake, entity, dry_run=dry_run, kinds=kinds.get(entity.topic.bronze_table, ()))
                for entity in entities
            ),
            *(
                retry_facts(lake, facts, dry_run=dry_run, kinds=kinds.get(facts.topic.bronze_table, ()))
                for facts in enrichments
            ),
        ]
        retried = [each.topic for each in done]
        others = {
            of_topic[0].topic.landing_name: release_moved(lake, of_topic, retried=retried, dry_run=dry_run)
            for of_topic in kinds.values()
        }
    what = "satisfy the contract now; nothing was done" if dry_run else "satisfy the contract now and left quarantine"
    for each in done:
        report.say(f"{each.topic}: {each.sound:,} of {each.malformed:,} malformed messages {what}")
    for name, number in others.items():
        if number:
            report.say(
                f"{name}: {number:,} malformed messages are of no kind{'' if dry_run else ' and left quarantine'}"
            )
