"""`lakehouse quarantine`: inspect what is held back, and decide what happens to it."""

import getpass
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated, Any

import pyarrow as pa
import typer

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.arguments import Facts, Note
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.retry_malformed import retry_changes, retry_facts
from pulsar_lakehouse.jobs.steps import open_lake, require
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.direct import append_arrow
from pulsar_lakehouse.tables.stored import is_stored

app = typer.Typer(no_args_is_help=True)

MOST = 20
"""Reasons of malformed messages that are told for a topic. Further ones are counted together."""

Reason = Annotated[str, typer.Option(help="Only facts that wait for this reason, such as missing or deleted.")]
Entity = Annotated[str, typer.Option(help="Only facts that wait for this entity, such as users.")]
Key = Annotated[str, typer.Option(help="Only facts that wait for this key.")]
Days = Annotated[float, typer.Option(min=0, help="Only facts that have waited for more than this many days.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]


@dataclass(frozen=True)
class Chosen:
    """The waiting facts that match all filters: SQL conditions, and the values of their parameters."""

    enrichment: Enrichment
    where: str
    state: str
    """Which of the missing states match."""
    values: dict[str, str | float]


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
    filtered = bool(facts or reason or entity or key or older_than)
    waiting = []
    if filtered or pipeline_of(settings).enrichments:
        waiting = _waiting(settings, _choose(settings, facts, reason, entity, key, older_than))
    malformed = [] if filtered else _malformed(settings)
    found = shapes.Quarantine(waiting=waiting, malformed=malformed, sql_rows=_sql_rows(settings))
    if as_json:
        shapes.show(found)
    else:
        _show(found)


def _waiting(settings: Settings, chosen: Chosen) -> list[shapes.Waiting]:
    expired = f"waiting_since < now() - INTERVAL {chosen.enrichment.retry_days} DAY"
    keys = ", ".join(f'"{key}"' for key in chosen.enrichment.keys)
    fact = f"concat_ws(' ', {keys})"  # as `lakehouse trace` takes it
    statement = f"""
        SELECT _state.reason, _state.entity, count(*) AS messages, min_by({fact}, waiting_since) AS oldest,
               count(DISTINCT _state.key) AS keys, min_by(_state.key, waiting_since) AS such_as,
               max(attempts) AS tried, min(waiting_since) AS since,
               count(*) FILTER (WHERE {expired}) AS expired
        FROM (SELECT *, unnest(missing) AS _state FROM {chosen.enrichment.waiting.name} WHERE {chosen.where})
        WHERE {chosen.state} GROUP BY ALL ORDER BY messages DESC, 1, 2
    """
    topic = chosen.enrichment.topic.name
    return [shapes.Waiting(topic=topic, **row) for row in _rows(settings, statement, chosen.values)]


def _malformed(settings: Settings) -> list[shapes.Malformed]:
    """By topic and reason. The rarest reasons of a topic are one, as each message can have a reason of its own."""
    if not is_stored(settings, MALFORMED.name):
        return []
    statement = f"""
        WITH reasons AS (
            SELECT topic, reason, count(*) AS messages, min(quarantined_at) AS since, max(quarantined_at) AS until
            FROM {MALFORMED.name} GROUP BY topic, reason
        ), placed AS (
            SELECT *, row_number() OVER (PARTITION BY topic ORDER BY messages DESC, reason) AS place FROM reasons
        )
        SELECT topic, any_value(if(place > {MOST}, 'other reasons', reason)) AS reason,
               sum(messages)::BIGINT AS messages, min(since) AS since, max(until) AS until
        FROM placed GROUP BY topic, least(place, {MOST + 1}) ORDER BY topic, min(place)
    """
    return [shapes.Malformed(**row) for row in _rows(settings, statement)]


def _sql_rows(settings: Settings) -> list[shapes.SqlRows]:
    if not is_stored(settings, SQL_ROWS.name):
        return []
    statement = f"""
        SELECT "table", reason, count(*) AS rows, min(keys) AS example, min(quarantined_at) AS since
        FROM {SQL_ROWS.name} GROUP BY ALL ORDER BY 1, 3 DESC
    """
    return [shapes.SqlRows(**row) for row in _rows(settings, statement)]


def _rows(settings: Settings, statement: str, values: Mapping[str, object] | None = None) -> list[dict[str, Any]]:
    found = query(settings, statement, values)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


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
def ask(
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
    chosen = _choose(settings, facts, reason, entity, key, older_than)
    name = chosen.enrichment.topic.name
    if not (chosen.values or everything):
        raise LakehouseError(f"{action} which of them? Say --reason, --entity, --key or --older-than, or else --all")
    rows = _actions(settings, action, chosen, note)
    if dry_run:
        report.say(f"{len(rows):,} waiting {name} match; nothing was done")
        return
    if len(rows):
        append_arrow(settings, ACTIONS.name, rows)
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


def _choose(settings: Settings, facts: str, reason: str, entity: str, key: str, days: float) -> Chosen:
    given = {"reason": reason, "entity": entity, "key": key}
    values: dict[str, str | float] = {name: value for name, value in given.items() if value}
    state = " AND ".join(f"_state.{name} = ${name}" for name in values) or "true"
    where = [f"EXISTS (SELECT 1 FROM unnest(missing) AS each(_state) WHERE {state})"] if values else ["true"]
    if days:
        where.append("waiting_since < now() - to_seconds($days * 86400)")
        values["days"] = days
    return Chosen(pipeline_of(settings).facts_named(facts), " AND ".join(where), state, values)


def _actions(settings: Settings, action: str, chosen: Chosen, note: str) -> pa.Table:
    waiting = chosen.enrichment.waiting.name
    if not is_stored(settings, waiting):
        raise LakehouseError(f"{waiting} is not there yet: run `lakehouse enrich` first")
    rows = f"""
        SELECT $action AS action, $topic AS topic, position, now() AS requested_at, $who AS requested_by,
               nullif($note, '') AS note
        FROM {waiting} WHERE {chosen.where}
    """
    told = {"action": action, "topic": chosen.enrichment.topic.name, "who": getpass.getuser(), "note": note}
    return query(settings, rows, {**chosen.values, **told}).to_arrow_table()
