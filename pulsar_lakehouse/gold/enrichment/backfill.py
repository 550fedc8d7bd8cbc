"""Recompute facts from bronze, either those of some days or those that used a key of state, and replace what differs.

A row in `gold.backfills` requests a backfill. The enrichment stream does it as part of a batch, so it works while the
stream runs, and nothing else writes gold meanwhile. A second row of that table says what it changed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.malformed import is_same_row, place_in, place_of, position_in, quarantine_malformed
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.enrichment.declaration import BACKFILLS, Enrichment, Lookup, awaited_keys
from pulsar_lakehouse.gold.enrichment.duplicates import find_duplicates
from pulsar_lakehouse.gold.enrichment.events import bounded
from pulsar_lakehouse.gold.enrichment.facts import decode_facts, valid_facts
from pulsar_lakehouse.gold.enrichment.lookups import look_up
from pulsar_lakehouse.gold.enrichment.matches import CURRENT
from pulsar_lakehouse.gold.enrichment.survivors import leading_to, mapping_of, merges_of
from pulsar_lakehouse.gold.enrichment.writes import (
    Pruning,
    bounds_of,
    placed_keys,
    pruning_filter,
    remove,
    stop_if_difference_fails,
    with_current,
    write_difference,
    write_duplicates,
)
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.comparing import is_same
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.direct import Merge, Within, append_values
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.reading import rows_if_small

NEVER, TWICE = "malformed, a duplicate, discarded, or never landed", "stored twice"
"""Why rows are removed from gold before others are recomputed."""

TRIES = 5
"""Attempts after transient failures, the first one included."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which facts: those of the days from `since` to `until`, both included, or those that used a key of an entity.

    A missing end of the days is open, so `Scope()` is all facts. If `key` is set, the days do not count.
    """

    since: date | None = None
    until: date | None = None
    entity: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        if self.key:
            return f"{self.entity}:{self.key}"
        if self.since == self.until:
            return str(self.since or "all days")
        return f"{self.since or 'the first day'} to {self.until or 'the last day'}"


EVERYTHING = Scope()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What a backfill does to gold, as numbers of facts, and how many of them wait afterwards."""

    unchanged: int = 0
    changed: int = 0
    added: int = 0
    removed: int = 0
    waiting: int = 0


def do_requested(lake: Lake, enrichment: Enrichment, request: Row) -> None:
    """Do a requested backfill, and record in `gold.backfills` what it did or why it failed.

    Does nothing if the request is already done or failed. Raises transient errors, so that the batch is run again: the
    backfill may be half done.
    """
    backfills = lake.table(BACKFILLS.name).read()
    events = [row.event for row in backfills.where(F.col("request") == request.request).select("event").collect()]
    if "done" in events or "failed" in events:
        return
    scope = Scope(since=request.since, until=request.until, entity=request.entity, key=request.key)
    result: dict[str, object] = {"topic": enrichment.topic.name, **request.asDict()}
    try:
        result |= {"event": "done", **asdict(backfill(lake, enrichment, scope))}
    except Exception as error:
        # A request that always fails must not stop the stream for good. `run.retries` can't limit it: Airflow sets 0.
        is_final = is_permanent(error) or events.count("tried") >= TRIES - 1
        result |= {"event": "failed" if is_final else "tried", "note": cause_of(error)}
        if not is_final:
            _note(lake.settings, result)
            raise
    _note(lake.settings, result)


def _note(settings: Settings, result: dict[str, object]) -> None:
    append_values(settings, BACKFILLS.name, [{**result, "at": datetime.now(UTC)}])


class Work(NamedTuple):
    """What a backfill is about: facts in scope, and their rows in gold and among the waiting ones."""

    decoded: DataFrame
    """All messages that landed."""
    facts: DataFrame
    """The landed facts, cached."""
    in_gold: DataFrame
    in_waiting: DataFrame
    never: DataFrame
    """The positions of rows that no such fact has."""
    number: int
    """How many facts and rows these are."""
    pruning: Pruning


class Decided(NamedTuple):
    """What becomes of the facts and rows. The frames are cached, but for `gone`."""

    wrong: DataFrame
    """The positions of rows to remove, with the reason."""
    gone: DataFrame
    """The rows of gold among these."""
    duplicates: DataFrame
    wanted: DataFrame
    """The other facts as `write_difference` takes them."""


def backfill(lake: Lake, enrichment: Enrichment, scope: Scope, *, dry_run: bool = False) -> Difference:
    """Update gold and quarantine to what today's declarations and state make of the facts that landed.

    Duplicate, discarded and malformed facts stay so. A fact whose message breaks today's contract becomes malformed,
    and one that never landed is removed. With `dry_run`, only the shadow table is written: what would differ in gold.
    Raises PermanentError if a check stops it.
    """
    with _gathered(lake, enrichment, scope) as work:
        if work is None:
            if dry_run and lake.table(enrichment.shadow).exists():
                lake.table(enrichment.shadow).delta.delete()
            return Difference()
        with _decided(lake, enrichment, scope, work) as decided:
            is_changed = ~_is_kept(decided.wanted, enrichment)
            stop_if_difference_fails(enrichment, decided.wanted, is_changed=is_changed)
            difference = _difference(decided.wanted, enrichment, decided.gone.count())
            if dry_run:
                _write_shadow(lake, enrichment, decided.wanted, decided.gone)
            else:
                _write(lake, enrichment, work, decided, is_changed=is_changed)
            return difference


@contextmanager
def _gathered(lake: Lake, enrichment: Enrichment, scope: Scope) -> Iterator[Work | None]:
    """What is in scope; None if nothing is."""
    gold, waiting = (rows_if_small(lake.table(name).pin()) for name in (enrichment.gold_table, enrichment.waiting.name))
    decoded = lake.table(enrichment.topic.bronze_table).pin().rows.transform(decode_facts, enrichment=enrichment)
    placed = _placed(lake, enrichment, scope, (gold, waiting))
    landed = _landed(lake, enrichment, scope, decoded, placed)
    with ExitStack() as kept:
        facts, touched, in_gold, in_waiting = kept.enter_context(cached(landed)), placed, gold, waiting
        if scope != EVERYTHING:
            chosen = _touched(facts, placed, decoded, (gold, waiting), enrichment)
            touched = kept.enter_context(cached(chosen))
            in_gold, in_waiting = (table.join(touched, on="position", how="left_semi") for table in (gold, waiting))
        everywhere = (each.select(*bounded(enrichment)) for each in (facts, in_gold, in_waiting))
        number, bounds = bounds_of(reduce(DataFrame.union, everywhere), enrichment)
        if not number:
            yield None
            return
        never, pruning = _without(touched, facts), pruning_filter(bounds, enrichment)
        yield Work(decoded, facts, in_gold, in_waiting, never, number, pruning)


@contextmanager
def _decided(lake: Lake, enrichment: Enrichment, scope: Scope, work: Work) -> Iterator[Decided]:
    with cached(_wrong(work.never, () if scope.key is not None else (work.in_gold, work.in_waiting))) as wrong:
        everywhere = work.in_gold, work.in_waiting, placed_keys(lake, enrichment, work.pruning)
        in_gold, in_waiting, others = (_without(rows, wrong) for rows in everywhere)
        fresh = _without(_without(work.facts, in_gold), in_waiting)
        with cached(fresh.transform(find_duplicates, placed=others, enrichment=enrichment)) as duplicates:
            facts = _with_places(_without(work.facts, duplicates), in_gold, in_waiting, enrichment)
            joined = look_up(facts, lake, enrichment, source=work.facts, number=work.number, renews=True)
            with cached(joined) as wanted:
                gone = work.in_gold.join(wrong, on="position")
                yield Decided(wrong, gone, duplicates, wanted)


def _write(lake: Lake, enrichment: Enrichment, work: Work, decided: Decided, *, is_changed: Column) -> None:
    topic = enrichment.topic
    broken = _broken(work.decoded, work.never, topic)
    quarantine_malformed(lake, enrichment.decoding, broken)
    if topic.rows:
        with cached(broken.select("message.position")) as positions:
            _remove_others(lake, enrichment, positions)
    remove(lake, [enrichment.gold_table, enrichment.waiting.name], decided.wrong.select("position"))
    write_difference(lake, enrichment, decided.wanted, work.pruning, is_changed=is_changed, at_once=True)
    few = lake.writing(decided.duplicates.count(), decided.duplicates)
    write_duplicates(few, enrichment, decided.duplicates)


def _placed(lake: Lake, enrichment: Enrichment, scope: Scope, tables: Sequence[DataFrame]) -> DataFrame:
    """The positions of the rows of gold and of the waiting facts that are in scope."""
    if scope == EVERYTHING:
        return reduce(DataFrame.union, (table.select("position") for table in tables))
    leading = {each.name: _leading(lake, each, scope) for each in enrichment.lookups}
    meant = (table.where(is_meant(scope, enrichment, table, leading)).select("position") for table in tables)
    return reduce(DataFrame.union, meant).distinct()


def _touched(
    facts: DataFrame, placed: DataFrame, decoded: DataFrame, tables: Sequence[DataFrame], enrichment: Enrichment
) -> DataFrame:
    """The positions of landed and placed facts, and of all placed rows of messages that are malformed as a whole."""
    touched = facts.select("position").union(placed).distinct()
    if not enrichment.topic.rows:
        return touched
    broken = _broken(decoded, _without(placed, facts), enrichment.topic).select("message.position")
    rows = reduce(DataFrame.union, (table.select("position") for table in tables))
    return touched.union(_rows_of(broken, rows, enrichment.topic)).distinct()


def _rows_of(broken: DataFrame, positions: DataFrame, topic: Topic) -> DataFrame:
    """Those of the positions that are of rows of the messages that are broken as a whole."""
    whole = broken.where("position.row < 0").withColumnRenamed("position", "_whole")
    is_of = is_same_row(F.col("position"), F.col("_whole"), topic) & (F.col("position.row") >= 0)
    return positions.join(whole, on=is_of, how="left_semi")


def _remove_others(lake: Lake, enrichment: Enrichment, whole: DataFrame) -> None:
    """Remove other rows of messages that are malformed as a whole now: duplicates, discarded and malformed ones."""
    topic = enrichment.topic
    for table in (enrichment.duplicates, enrichment.discarded):
        with cached(_rows_of(whole, lake.table(table.name).pin().rows.select("position"), topic)) as rows:
            remove(lake, [table.name], rows)
    malformed = lake.table(MALFORMED.name).pin().rows.where(F.col("topic") == topic.name)
    with cached(_rows_of(whole, malformed.select(position_in(topic)), topic)) as rows:
        if number := rows.count():
            within = Within(F.col("held.topic") == topic.name, {"topic": (topic.name, topic.name)})
            gone = rows.select(*place_of(F.col("position"), topic))
            how = Merge(on=place_in(topic), within=within, delete=True)
            lake.writing(number, rows).table(MALFORMED.name).merge(gone, how)


def _with_places(facts: DataFrame, in_gold: DataFrame, in_waiting: DataFrame, enrichment: Enrichment) -> DataFrame:
    """Facts with their row in gold, as `_current`, and `_is_waiting`."""
    is_waiting = in_waiting.select("position", F.lit(True).alias("_is_waiting"))
    return (
        facts.transform(with_current, gold=in_gold, enrichment=enrichment)
        .join(is_waiting, on="position", how="left")
        .withColumn("_is_waiting", F.coalesce("_is_waiting", F.lit(False)))
    )


def _broken(decoded: DataFrame, never: DataFrame, topic: Topic) -> DataFrame:
    """The messages among the positions `never` that break today's contract."""
    positions = never.select(F.col("position").alias("_never"))
    is_broken = is_same_row(F.col("message.position"), F.col("_never"), topic)
    return decoded.where("reason IS NOT NULL").join(positions, on=is_broken, how="left_semi")


def _landed(lake: Lake, enrichment: Enrichment, scope: Scope, decoded: DataFrame, placed: DataFrame) -> DataFrame:
    """The landed facts that are in scope or `placed`, without duplicates, discarded facts and malformed messages.

    `placed` are needed too: a fact stored under a day of the scope can have another day by today's declaration.
    """
    facts = valid_facts(decoded, enrichment)
    if scope != EVERYTHING:
        is_meant_now = is_of_days(scope, enrichment) if scope.key is None else F.lit(False)
        facts = facts.join(placed.withColumn("_is_placed", F.lit(True)), on="position", how="left")
        facts = facts.where(is_meant_now | F.col("_is_placed")).drop("_is_placed")
    for table in (enrichment.duplicates, enrichment.discarded):
        facts = _without(facts, rows_if_small(lake.table(table.name).pin(), columns=["position"]))
    topic = enrichment.topic
    malformed = rows_if_small(lake.table(MALFORMED.name).pin(), columns=["topic", *place_in(topic)])
    held = malformed.where(F.col("topic") == topic.name).select(position_in(topic).alias("_held"))
    return facts.join(held, on=is_same_row(F.col("position"), F.col("_held"), topic), how="left_anti")


def _wrong(never: DataFrame, tables: Iterable[DataFrame]) -> DataFrame:
    """The positions of rows to remove, with the reason: those in `never`, and those that one of the tables has twice.

    A backfill of a key passes no tables. If it stopped after the removal, a retry could not find the removed facts,
    because only the stored rows say which facts used the key.
    """
    wrong = never.withColumn("reason", F.lit(NEVER))
    for table in tables:
        twice = table.groupBy("position").count().where("count > 1")
        wrong = wrong.union(twice.select("position", F.lit(TWICE).alias("reason")))
    return wrong.groupBy("position").agg(F.min("reason").alias("reason"))


def _without(rows: DataFrame, others: DataFrame) -> DataFrame:
    return rows.join(others.select("position"), on="position", how="left_anti")


def is_of_days(scope: Scope, enrichment: Enrichment) -> Column:
    """Whether a fact is of the days in scope."""
    day = F.col(enrichment.day)
    since, until = (F.coalesce(F.lit(end).cast("date"), day) for end in (scope.since, scope.until))
    return day.between(since, until)


def is_meant(scope: Scope, enrichment: Enrichment, table: DataFrame, leading: Mapping[str, Collection[str]]) -> Column:
    """Whether a row of gold or of the waiting facts is in scope. `leading` are the keys, by lookup, that lead to it."""
    if scope.key is None:
        return is_of_days(scope, enrichment)
    is_waiting = "missing" in table.columns
    lookups = [lookup for lookup in enrichment.lookups if lookup.entity.name == scope.entity]
    used = [each.own_key.isin(*leading[each.name]) for each in lookups if not (is_waiting and each.through)]
    if is_waiting:
        of_scope = F.struct(F.lit(scope.entity).alias("entity"), F.lit(scope.key).alias("key"))
        used.append(F.exists("missing", lambda state: F.array_contains(awaited_keys(state), of_scope)))
    else:
        joins = (join for join in enrichment.joins if join.entity.name == scope.entity)
        used += [F.array_contains(join.used_keys, F.lit(scope.key)) for join in joins]
    return F.coalesce(reduce(Column.__or__, used, F.lit(False)), F.lit(False))


def _leading(lake: Lake, lookup: Lookup, scope: Scope) -> set[str]:
    """The key in scope, and the keys that were merged into it: a fact in gold without state does not name these."""
    if lookup.entity.name != scope.entity or scope.key is None:
        return set()
    if lookup.merged_into is None:
        return {scope.key}
    merges = mapping_of(merges_of(lake.table(lookup.table).pin(), lookup=lookup))
    texts = {str(key): str(into) for key, into in merges.items()}
    return leading_to([scope.key], merges=texts, limit=lookup.max_merges)


def _row(enrichment: Enrichment) -> Column:
    """A whole row of gold as a struct."""
    return F.struct(*enrichment.gold_columns)


def _is_kept(wanted: DataFrame, enrichment: Enrichment) -> Column:
    return is_same(F.col(CURRENT), _row(enrichment), wanted.schema[CURRENT].dataType)


def _kind(wanted: DataFrame, enrichment: Enrichment) -> Column:
    """For each wanted fact: what happens to it in gold."""
    current, is_complete = F.col(CURRENT), F.col("missing").isNull()
    kind = F.when(is_complete & _is_kept(wanted, enrichment), "unchanged")
    kind = kind.when(is_complete & current.isNotNull(), "changed").when(is_complete, "added")
    return kind.when(current.isNotNull(), "removed").otherwise("waiting")


def _difference(wanted: DataFrame, enrichment: Enrichment, gone: int) -> Difference:
    kinds = wanted.groupBy(_kind(wanted, enrichment).alias("_kind")).count().collect()
    counts = Counter({row["_kind"]: row["count"] for row in kinds})
    counts["waiting"] += counts["removed"]
    counts["removed"] += gone
    return Difference(**counts)


def _write_shadow(lake: Lake, enrichment: Enrichment, wanted: DataFrame, gone: DataFrame) -> None:
    """Write the rows of gold that would differ, before and after, over the shadow table."""
    names = (*enrichment.keys, enrichment.day, "position")
    row, kind, current = _row(enrichment), _kind(wanted, enrichment), F.col(CURRENT)
    types = {name: wanted.schema[name].dataType for name in enrichment.gold_columns}
    differs = (F.when(~is_same(current[name], F.col(name), each), name) for name, each in types.items())
    changed = wanted.where(kind.isin("changed", "added", "removed")).select(
        *names,
        kind.alias("difference"),
        F.when(kind == "removed", F.col("reason")).alias("reason"),
        F.when(kind == "changed", F.array_compact(F.array(*differs))).alias("columns"),
        current.alias("before"),
        F.when(F.col("missing").isNull(), row).alias("after"),
    )
    removed = gone.select(*names, F.lit("removed").alias("difference"), "reason", row.alias("before"))
    rows = changed.unionByName(removed, allowMissingColumns=True)
    path = lake.table(enrichment.shadow).path
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(path)
