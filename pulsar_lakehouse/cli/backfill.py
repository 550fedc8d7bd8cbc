"""`lakehouse backfill`: recompute facts with today's declarations and state."""

import getpass
import json
import re
import time
import uuid
from dataclasses import asdict, fields
from datetime import UTC, date, datetime
from typing import Annotated, Any

import typer
from pyspark.sql.types import LongType

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.errors import BusyError, ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import BACKFILLS, Enrichment
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.maintenance import rewriting
from pulsar_lakehouse.jobs.steps import as_written, enriching, open_lake, require
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.leases.homes import refuse_other_home
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import is_stored

WAIT_SECONDS = 1.0

SHOWN = 10
"""Rows that a dry run prints at most."""

Facts = Annotated[str, typer.Option(help="The topic of the facts. Needed only if there are several.")]
Note = Annotated[str, typer.Option(help="Why, for the record.")]


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
    if bool(since) == bool(because):
        raise ConfigurationError("backfill: give either days by --from and --to, or a key by --because")
    if because:
        entity, separator, key = because.partition(":")
        known = {lookup.entity.name: lookup.entity for lookup in enrichment.lookups}
        if entity not in known or not separator or not key:
            raise ConfigurationError(
                f"--because {because}: must be an entity of {', '.join(sorted(known)) or 'none'} and a key, such as "
                f"{max(known, default='users')}:123"
            )
        if right := right_key(known[entity], key):
            raise ConfigurationError(f"--because {because}: a key of {entity} is {right}")
        scope = Scope(entity=entity, key=key)
    else:
        first = _day("--from", since)
        last = _day("--to", until) if until else first
        if last < first:
            raise ConfigurationError(f"--to {until}: must not be before --from {since}")
        scope = Scope(since=first, until=last)
    if dry_run:
        with open_lake(settings, writes=[enrichment.shadow]) as lake:
            foresee(lake, enrichment, scope)
    else:
        _show(_order(settings, enrichment, scope, note), enrichment.topic.name)


def foresee(lake: Lake, enrichment: Enrichment, scope: Scope) -> None:
    """Print what would change, and which table has all of it."""
    require(lake, [BACKFILLS.name], made_by="run")
    gold = lake.table(enrichment.gold_table).read()
    if lacking := set(enrichment.gold_columns) - set(gold.columns):
        columns = ", ".join(sorted(lacking))
        raise LakehouseError(f"{enrichment.gold_table} has no {columns} yet: run `lakehouse enrich` first")
    with spinner("Comparing"):
        difference = backfill(lake, as_written(lake, enrichment), scope, dry_run=True)
    _show(difference, enrichment.topic.name)
    if differs := difference.changed + difference.added + difference.removed:
        columns = "array_to_string(columns, ', ') AS columns"
        names = ", ".join((*enrichment.keys, enrichment.day, "difference", columns, "reason"))
        found = query(lake.settings, f"SELECT {names} FROM {enrichment.shadow} ORDER BY ALL LIMIT {SHOWN}")
        report.rows(found.columns, found.fetchall(), title=f"{min(differs, SHOWN):,} of {differs:,} rows that differ")
        report.say(f"All of them, before and after: {enrichment.shadow}")


def request(settings: Settings, enrichment: Enrichment, scope: Scope, note: str) -> str:
    """Ask the enrichment stream for a backfill; returns the request's id.

    Raises LakehouseError if nothing has been enriched yet.
    """
    if not is_stored(settings, BACKFILLS.name):
        raise LakehouseError(f"{BACKFILLS.name} is not there yet: run `lakehouse enrich` first")
    row = {
        "request": str(uuid.uuid4()),
        "event": "requested",
        "topic": enrichment.topic.name,
        **asdict(scope),
        "at": datetime.now(UTC),
        "requested_by": getpass.getuser(),
        "note": note or None,
    }
    refuse_other_home(settings)
    with rewriting(settings):
        append_values(settings, BACKFILLS.name, [row])
    return str(row["request"])


def _order(
    settings: Settings,
    enrichment: Enrichment,
    scope: Scope,
    note: str,
) -> Difference:
    """Request a backfill and wait for its result. The running stream does it; if none runs, one is started here."""
    asked = request(settings, enrichment, scope, note)
    while (done := _result(settings, asked)) is None:
        try:
            with open_lake(settings, writes=[enrichment.gold_table]) as lake:
                catch_up(settings, enriching(lake, [enrichment]))
        except BusyError as busy:
            with spinner(f"Waiting for the process that is writing now: {busy}"):
                time.sleep(WAIT_SECONDS)
    return done


def _result(settings: Settings, request: str) -> Difference | None:
    """The result of a request, or None if there is none yet. Raises LakehouseError with the reason if it failed."""
    counts = [field.name for field in fields(Difference)]
    ended = f"SELECT event, note, {', '.join(counts)} FROM {BACKFILLS.name} WHERE event IN ('done', 'failed')"
    rows = query(settings, f"{ended} AND request = $request", {"request": request}).fetchall()
    if not rows:
        return None
    event, note, *found = rows[0]
    if event == "failed":
        raise LakehouseError(f"the backfill failed: {note}")
    return Difference(**dict(zip(counts, found, strict=True)))


def _show(difference: Difference, facts: str) -> None:
    counts: dict[str, Any] = asdict(difference)
    report.rows(
        list(counts), [[f"{count:,}" for count in counts.values()]], title=f"{facts} in gold, and how many wait now"
    )


def right_key(entity: Entity, key: str) -> str | None:
    """What a key would be, if this is none; None if it is one, as far as that can be known without Spark."""
    if len(entity.keys) > 1:
        names = ", ".join(entity.keys)
        return None if _is_array(key, len(entity.keys)) else f'a JSON array of {names}, such as [7,"EUR"]'
    sql = entity.columns[entity.keys[0]]
    is_number = any(field.name == sql and field.dataType == LongType() for field in entity.topic.fields)
    return f"a BIGINT, such as {entity.name}:123" if is_number and not re.fullmatch(r"-?\d+", key) else None


def _is_array(text: str, length: int) -> bool:
    try:
        values = json.loads(text)
    except ValueError:
        return False
    return isinstance(values, list) and len(values) == length


def _day(option: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text}: must be a day, such as 2026-01-31") from None
