"""`lakehouse backfill`: recompute facts with today's declarations and state."""

from dataclasses import asdict
from datetime import date
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import Facts, Note, key_of
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.backfill_requests import foresee, request_and_wait
from pulsar_lakehouse.jobs.steps import open_lake
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.lake import Lake

SHOWN = 10
"""Rows that a dry run prints at most."""


def backfill_command(
    since: Annotated[str, typer.Option("--from", help="The first day, such as 2026-01-31.")] = "",
    until: Annotated[str, typer.Option("--to", help="The last day, which is included. Default: the first day.")] = "",
    because: Annotated[str, typer.Option(help="Instead of days: facts that used this key, such as users:123.")] = "",
    facts: Facts = "",
    note: Note = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
) -> None:
    """Recompute the facts of some days, or those that used a key, from bronze; replace what differs in one commit."""
    settings = load_settings()
    enrichment = pipeline_of(settings).facts_named(facts)
    scope = _scope(enrichment, since, until, because)
    if dry_run:
        with open_lake(settings, writes=[enrichment.shadow]) as lake:
            show_foreseen(lake, enrichment, scope)
    else:
        _show(request_and_wait(settings, enrichment, scope, note), enrichment, scope, settings)


def _scope(enrichment: Enrichment, since: str, until: str, because: str) -> Scope:
    if bool(since) == bool(because):
        raise ConfigurationError("backfill: give either days by --from and --to, or a key by --because")
    if because:
        entities = {join.entity.name: join.entity for join in enrichment.joins}
        entity, key = key_of(entities, because, option="--because ")
        return Scope(entity=entity.name, key=key)
    first = _day("--from", since)
    last = _day("--to", until) if until else first
    if last < first:
        raise ConfigurationError(f"--to {until}: must not be before --from {since}")
    return Scope(since=first, until=last)


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text}: must be a day, such as 2026-01-31") from None


def show_foreseen(lake: Lake, enrichment: Enrichment, scope: Scope) -> None:
    """Print what would change, and which table has all of it."""
    difference = foresee(lake, enrichment, scope)
    _show(difference, enrichment, scope, lake.settings)
    if differs := difference.changed + difference.added + difference.removed:
        columns = "array_to_string(columns, ', ') AS columns"
        names = ", ".join((*enrichment.keys, enrichment.day, "difference", columns, "reason"))
        found = query(lake.settings, f"SELECT {names} FROM {enrichment.shadow} ORDER BY ALL LIMIT {SHOWN}")
        report.rows(found.columns, found.fetchall(), title=f"{min(differs, SHOWN):,} of {differs:,} rows that differ")
        report.say(f"All of them, before and after: {enrichment.shadow}")


def _show(difference: Difference, enrichment: Enrichment, scope: Scope, settings: Settings) -> None:
    counts = asdict(difference)
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    report.note([f"{enrichment.topic.name}, {scope}: {said}"], settings)
    title = f"{enrichment.topic.name} in gold, and how many wait now"
    report.rows(list(counts), [[f"{count:,}" for count in counts.values()]], title=title)
