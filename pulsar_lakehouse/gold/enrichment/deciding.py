"""The stage of a batch that decides again about facts which are placed already."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.gold.enrichment.changes import (
    corrections_by,
    fact_columns,
    first_outdated,
    joined_by_others,
    outdated_by,
    waiting_for,
)
from pulsar_lakehouse.gold.enrichment.declaration import Lookup
from pulsar_lakehouse.gold.enrichment.events import CHANGE, Batch, is_event
from pulsar_lakehouse.gold.enrichment.lookups import is_corrected, look_up
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.writes import (
    Pruning,
    bounds_of,
    pruning_filter,
    stop_if_difference_fails,
    with_current,
    write_difference,
)
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.reading import no_rows, rows_if_small, rows_of_keys, rows_since


class Concerned(NamedTuple):
    """Cached facts that have to be decided again, with `_is_waiting`."""

    facts: DataFrame
    number: int
    pruning: Pruning


def decide_again(batch: Batch) -> None:
    """Recompute the placed facts that changes of state or releases affect, and write what differs.

    The batch's own new facts are not among them: they were joined with state that has these changes. If the batch runs
    again, they are, with the same result.
    """
    joins = _changed_joins(batch)
    corrects = bool(joins) and not batch.placed.gold.is_known_empty
    if batch.placed.waiting.is_known_empty and not corrects:
        return
    with _concerned(batch, joins if corrects else []) as concerned:
        if concerned is not None:
            with batch.lake.sized(concerned.number) as lake:
                _write_again(lake, batch, concerned)


def _changed_joins(batch: Batch) -> list[Lookup | Match]:
    """The joins whose changes can correct facts in gold."""
    changed, lost = batch.summary.changed_versions, batch.summary.lost

    def is_changed(join: Lookup | Match) -> bool:
        if isinstance(join, Match):
            return join.awaited in changed
        return join.entity.name in (changed if join.is_as_of else lost)

    return [each for each in batch.enrichment.joins if batch.is_first or is_changed(each)]


@contextmanager
def _concerned(batch: Batch, corrected: list[Lookup | Match]) -> Iterator[Concerned | None]:
    """The facts that wait for what the events bring, and those in gold whose joins can be `corrected`.

    None if there are none, as it mostly is. Only otherwise, waiting facts are read as a whole.
    """
    columns, events = fact_columns(batch.enrichment), batch.summary.events
    with ExitStack() as kept:
        with batch.lake.sized(events):
            outdated = kept.enter_context(_outdated(batch, corrected))
            waiting = rows_if_small(batch.placed.waiting)
            retried = waiting_for(
                waiting, events=batch.events, number=events, outdated=outdated, enrichment=batch.enrichment
            )
            positions = kept.enter_context(cached(retried))
            concerned = None
            if number := positions.count():
                chosen = F.broadcast(positions) if number <= FEW else positions
                retried = waiting.join(chosen, on="position", how="left_semi").select(*columns)
                retried = kept.enter_context(cached(retried))
                others = outdated.join(retried.select("position"), on="position", how="left_anti")
                facts = retried.withColumn("_is_waiting", F.lit(True)).union(others.select(*columns, F.lit(False)))
                facts = kept.enter_context(cached(facts))
                number, bounds = bounds_of(facts, batch.enrichment)
                if number:
                    concerned = Concerned(facts, number, pruning_filter(bounds, batch.enrichment))
        yield concerned


@contextmanager
def _outdated(batch: Batch, joins: list[Lookup | Match]) -> Iterator[DataFrame]:
    """The facts in gold that changes of the joins' state concern.

    Of a first batch, these are also all facts that were joined through a merge, which may be undone, or with a partner,
    which may be another's.
    """
    gold, enrichment, columns = batch.placed.gold, batch.enrichment, fact_columns(batch.enrichment)
    if not joins:
        yield no_rows(gold, columns)
        return
    changes = batch.events.where(is_event(CHANGE))
    used = (path.partition(".")[0] for join in joins for path in join.paths)
    with cached(changes.transform(corrections_by, joins=joins, lake=batch.lake)) as corrections:
        day, moment = first_outdated(corrections, enrichment)
        recent = rows_since(
            gold,
            day=(enrichment.day, day),
            time=(enrichment.event_time, moment),
            columns=list(dict.fromkeys((*columns, *used))),
        )
        outdated = outdated_by(recent, corrections=corrections, joins=joins, enrichment=enrichment)
        if batch.is_first:
            others = joined_by_others(gold.rows, joins=joins, enrichment=enrichment)
            outdated = outdated.union(others).dropDuplicates(["position"])
        with cached(outdated):
            yield outdated


def _write_again(lake: Lake, batch: Batch, concerned: Concerned) -> None:
    """Recompute facts with today's state, and write what differs from their rows in gold."""
    enrichment, gold, pruning = batch.enrichment, batch.placed.gold, concerned.pruning
    if concerned.number <= FEW:
        keys = concerned.facts.select(*enrichment.keys).toArrow()
        current = rows_of_keys(gold, keys, within=pruning.within.ranges, near=pruning.rows)
    else:
        current = gold.rows.where(pruning.rows)
    facts = concerned.facts.transform(with_current, gold=current, enrichment=enrichment)
    facts = facts.dropDuplicates(["position"])  # a MERGE fails on a position that damaged gold has twice
    wanted = facts.transform(look_up, lake=lake, enrichment=enrichment, source=concerned.facts, number=concerned.number)
    with cached(wanted):
        is_changed = is_corrected(enrichment)
        stop_if_difference_fails(enrichment, wanted, is_changed=is_changed)
        write_difference(lake, enrichment, wanted, pruning, is_changed=is_changed)
