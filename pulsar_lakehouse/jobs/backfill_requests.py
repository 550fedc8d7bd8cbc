"""Ask for backfills, which the enrichment stream does, and wait for what they did; or foresee what they would do."""

import getpass
import time
import uuid
from dataclasses import asdict, fields
from datetime import UTC, datetime

from pulsar_lakehouse.errors import BusyError, LakehouseError
from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import BACKFILLS, Enrichment
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.maintenance import rewriting
from pulsar_lakehouse.jobs.steps import as_written, enriching, open_lake, require
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.leases.homes import refuse_other_home
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.records import step_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import is_stored

WAIT_SECONDS = 1.0


def request(settings: Settings, enrichment: Enrichment, scope: Scope, note: str) -> str:
    """Ask the enrichment stream for a backfill; returns the request's id.

    Raises LakehouseError if nothing has been enriched yet.
    """
    if not is_stored(settings, BACKFILLS.name):
        raise LakehouseError(f"{BACKFILLS.name} is not there yet: run `lakehouse enrich` first")
    id = str(uuid.uuid4())
    who = {"at": datetime.now(UTC), "requested_by": getpass.getuser(), "note": note or None}
    row = {"request": id, "event": "requested", "topic": enrichment.topic.name, **asdict(scope), **who}
    refuse_other_home(settings)
    with rewriting(settings):
        append_values(settings, BACKFILLS.name, [row])
    return id


def request_and_wait(settings: Settings, enrichment: Enrichment, scope: Scope, note: str) -> Difference:
    """Request a backfill and wait for its result. The running stream does it; if none runs, one is started here."""
    asked = request(settings, enrichment, scope, note)
    while (done := _result(settings, asked)) is None:
        try:
            with open_lake(settings, writes=[enrichment.gold_table]) as lake:
                catch_up(settings, enriching(lake, [enrichment]))
        except BusyError as busy:
            failure = step_record(settings, f"enrich {enrichment.topic.name}").failure
            why = f"; its last round failed: {failure}" if failure else ""
            with spinner(f"Waiting for the process that is writing now: {busy}{why}"):
                time.sleep(WAIT_SECONDS)
    return done


def _result(settings: Settings, request: str) -> Difference | None:
    """The result of a request, or None if there is none yet. Raises LakehouseError with the reason if it failed."""
    counts = [field.name for field in fields(Difference)]
    ended = f"SELECT event, note, {', '.join(counts)} FROM {BACKFILLS.name} WHERE event IN ('done', 'failed')"
    rows = query(settings, f"{ended} AND request = $request", {"request": request}).fetchall()
    if not rows:
        return None
    event, note, *numbers = rows[0]
    if event == "failed":
        raise LakehouseError(f"the backfill failed: {note}")
    return Difference(**dict(zip(counts, numbers, strict=True)))


def foresee(lake: Lake, enrichment: Enrichment, scope: Scope) -> Difference:
    """What a backfill would change; the rows are in the shadow table then."""
    require(lake, [BACKFILLS.name], made_by="run")
    if lacking := set(enrichment.gold_columns) - set(lake.table(enrichment.gold_table).read().columns):
        columns = ", ".join(sorted(lacking))
        raise LakehouseError(f"{enrichment.gold_table} has no {columns} yet: run `lakehouse enrich` first")
    with spinner("Comparing"):
        return backfill(lake, as_written(lake, enrichment), scope, dry_run=True)
