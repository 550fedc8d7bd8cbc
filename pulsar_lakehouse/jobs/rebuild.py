"""Rebuild tables of silver and gold from bronze, with the present declarations.

Bronze has all that landed, so nothing is lost. Checkpoints go first and tables after them: whatever is removed when a
rebuild is killed, the next run makes again, and a rebuild that is repeated begins from the start.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.checkpoints.batches import UNREAD, begin_behind
from pulsar_lakehouse.checkpoints.offsets import behind
from pulsar_lakehouse.checkpoints.soundness import batch_context
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.malformed import position_in, quarantine_malformed
from pulsar_lakehouse.contracts.topics import ROWS, Topic
from pulsar_lakehouse.damage import DamagedError
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.backfill import EVERYTHING, Difference, backfill
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, FIXED, Enrichment
from pulsar_lakehouse.gold.enrichment.enrich import create_tables, gold_of, reads
from pulsar_lakehouse.gold.enrichment.events import DISCARD, REJECTED, as_events, is_event
from pulsar_lakehouse.gold.enrichment.facts import decode_facts, valid_facts
from pulsar_lakehouse.gold.enrichment.placing import not_placed
from pulsar_lakehouse.gold.enrichment.writes import discard
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.inspection.file_checks import check_table
from pulsar_lakehouse.jobs.lineage.flows import enriched
from pulsar_lakehouse.jobs.lineage.runs import told
from pulsar_lakehouse.jobs.sql_tables import refresh_each
from pulsar_lakehouse.jobs.steps import as_written, enriching, merging, require
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.definitions import (
    approve_losses,
    declared_definition,
    is_same,
    keep_definition,
    kept_definition,
)
from pulsar_lakehouse.tables.evolution import column_changes
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import is_stored


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The entities, facts and tables `in_sql` to rebuild, and other SQL tables that are made from these."""

    entities: tuple[Entity, ...]
    enrichments: tuple[Enrichment, ...]
    sql_tables: tuple[str, ...]
    in_sql: tuple[SqlTable, ...] = ()

    @property
    def written(self) -> list[str]:
        """The tables whose leases a rebuild must hold."""
        states, facts = (each.table.name for each in self.entities), (each.gold_table for each in self.enrichments)
        return [*states, *facts, *(each.name for each in self.in_sql)]

    @property
    def sources(self) -> list[str]:
        """The other tables that these are made from."""
        made = {*self.written, *(each.history.name for each in self.entities)}
        read = [each.topic.bronze_table for each in self.entities]
        read += [each.topic.bronze_table for each in self.enrichments]
        read += [name for each in self.enrichments for name in each.state_tables]
        read += [name for each in self.in_sql for name in each.sources]
        return [name for name in dict.fromkeys(read) if name not in made]


def wanted(pipeline: Pipeline, names: Sequence[str]) -> Wanted:
    """The tables with these names, and those that depend on them. Raises ConfigurationError for any other name."""
    entities = [each.table.name for each in pipeline.entities]
    entities += [each.history.name for each in pipeline.entities if each.keeps_history]
    enrichments = {each.gold_table: each for each in pipeline.enrichments}
    in_sql = {each.name: each for each in pipeline.sql_tables}
    for name in names:
        if name not in entities and name not in enrichments and name not in in_sql:
            raise ConfigurationError(
                f"{name}: can't be rebuilt; there are {', '.join((*entities, *enrichments, *in_sql))}"
            )
    chosen = tuple(each for each in pipeline.entities if {each.table.name, each.history.name} & set(names))
    made = {name for each in chosen for name in (each.table.name, each.history.name)}
    facts = tuple(each for name, each in enrichments.items() if name in names or not made.isdisjoint(each.state_tables))
    made |= {name for each in facts for name in each.places}
    made |= in_sql.keys() & set(names)
    depend = []
    for table in pipeline.sql_tables:
        if not made.isdisjoint(table.sources) and table.name not in names:
            depend.append(table.name)
            made.add(table.name)
    computed = tuple(table for name, table in in_sql.items() if name in names)
    return Wanted(entities=chosen, enrichments=facts, in_sql=computed, sql_tables=tuple(depend))


def cure(pipeline: Pipeline, name: str) -> str:
    """What to do about a table with a damaged file."""
    made = {each.name: each.name for each in pipeline.sql_tables}
    for facts in pipeline.enrichments:
        made |= dict.fromkeys(made_again(facts), facts.gold_table)
    for entity in pipeline.entities:
        made |= {each: each for each in (entity.table.name, entity.history.name)}
    if name in made:
        return f"`lakehouse rebuild {made[name]} --approve` makes it again"
    again = ", or land its topic again" if name in {topic.bronze_table for topic in pipeline.bronze} else ""
    return f"restore the file from a copy{again}: see *A file is damaged* in docs/operations.md"


def rebuild(lake: Lake, tables: Wanted) -> Iterator[str]:
    """Rebuild silver, then gold; yields what was done, a line for each. This process must hold all leases.

    Raises DamagedError, before anything is removed, if what they are made from is damaged.
    """
    require(lake, [each.topic.bronze_table for each in tables.entities], made_by="run")
    for name in tables.sources:
        if damage := damage_of(lake.settings, [name]):
            raise DamagedError(f"{name}: {damage}: nothing is made from it again; see `lakehouse check {name}`")
    for each in tables.enrichments:
        forget_progress(lake, each.gold_table, each.topic)
    yield from _rebuild_entities(lake, tables.entities)
    yield from _rebuild_facts(lake, tables.enrichments)
    yield from _compute_again(lake, tables.in_sql)


def _rebuild_entities(lake: Lake, entities: Iterable[Entity]) -> Iterator[str]:
    for entity in entities:
        forget_progress(lake, entity.table.name, entity.topic)
        own = (entity.history.name, entity.table.name)  # the last one refuses a run with another key or order
        damage = damage_of(lake.settings, own)
        for name in own:
            lake.table(name).remove()
        catch_up(lake.settings, merging(lake, [entity]))
        yield f"{entity.table.name}: {_as(damage)}made again from {entity.topic.bronze_table}"


def _rebuild_facts(lake: Lake, enrichments: Iterable[Enrichment]) -> Iterator[str]:
    for each in enrichments:
        if not all(lake.table(name).exists() for name in (each.topic.bronze_table, *each.state_tables)):
            continue  # it never ran
        damage = damage_of(lake.settings, made_again(each))
        is_new = begin_again_unless_fits(lake, each, is_damaged=bool(damage))
        how = f"{_as(damage)}made again from {each.topic.bronze_table}"
        if not is_new and lake.table(each.gold_table).exists():
            approve_losses(lake, gold_of(lake, each))  # the backfill gives all rows the values of today's columns
            how = f"{_recompute(lake, each).changed:,} facts changed"
        catch_up(lake.settings, enriching(lake, [each]))
        waiting = lake.table(each.waiting.name).read().count()
        yield f"{each.gold_table}: {how}, {waiting:,} wait"
        if is_new and each.publish_to:
            yield publish_again(each.publish_to)


def _recompute(lake: Lake, facts: Enrichment) -> Difference:
    """Check and decide all messages again, and let the stream, whose progress is forgotten, go on behind them.

    If this is killed, the stream begins again, with the same result.
    """
    create_tables(lake, as_written(lake, facts))
    sources = reads(facts)[:-1]  # backfills that were asked for and not done yet are done after this one
    seen = lake.versions(sources)  # before the schemas: the stream reads what lands later by those that come with it
    facts = as_written(lake, facts)
    discards = (F.col("topic") == facts.topic.name) & (F.col("action") == DISCARD)
    discard(lake, facts, lake.table(ACTIONS.name).read().where(discards).select(position_in(facts.topic)))
    with told(lake.settings, replace(enriched(facts), step=f"backfill {facts.topic.name}")):
        difference = backfill(lake, facts, EVERYTHING)
    _quarantine_rejected(lake, facts, lake.table(facts.topic.bronze_table).read(seen[facts.topic.bronze_table]))
    keep_definition(lake, facts.gold_table, facts.definition)
    offsets = [*(behind(lake.table(table).id, version) for table, version in seen.items()), UNREAD]
    begin_behind(lake.settings, facts.gold_table, offsets, batch_context(lake.spark))
    return difference


def _quarantine_rejected(lake: Lake, facts: Enrichment, messages: DataFrame) -> None:
    """Quarantine those of the messages that break the contract and are in no table."""
    events = as_events(decode_facts(messages, enrichment=facts), facts)
    with (
        cached(events.where(is_event(REJECTED))) as rejected,
        cached(not_placed(lake, facts, rejected, since=0)) as new,
    ):
        if not new.isEmpty():
            quarantine_malformed(lake, facts.decoding, new)


def _compute_again(lake: Lake, tables: Iterable[SqlTable]) -> Iterator[str]:
    for table in tables:
        if damage := damage_of(lake.settings, [table.name]):
            lake.table(table.name).remove()
        for done in refresh_each(lake, [table], full=True):
            yield f"{table.name}: {_as(damage)}computed again, {done.inserted:,} rows"


def _as(damage: str) -> str:
    return f"{damage}, " if damage else ""


def damage_of(settings: Settings, names: Iterable[str]) -> str:
    """Which files of the tables are damaged; empty if none is."""
    stored = (name for name in names if is_stored(settings, name))
    faults = [fault for name in stored for fault in check_table(settings, name).faults]
    more = f" and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    return f"{faults[0].file}{more} damaged" if faults else ""


def publish_again(topic: str) -> str:
    """What to do about the topic of a table that is made again."""
    return f"The topic {topic} has the messages of the old table: delete it before you publish again"


def made_again(facts: Enrichment) -> list[str]:
    """The tables that can be made again from bronze: what was discarded is known from nothing else."""
    return [facts.duplicates.name, facts.waiting.name, facts.gold_table]


def begin_again_unless_fits(lake: Lake, facts: Enrichment, *, is_damaged: bool) -> bool:
    """Remove gold and its quarantine if they can't be changed row by row; returns whether they were removed.

    Discarded facts stay discarded, unless messages have other rows now. Gold goes last: it refuses a run with other
    keys or another day.
    """
    if not is_damaged and fits(lake, facts):
        return False
    places = made_again(facts)
    if not _has_same_rows(lake, facts):
        places.insert(0, facts.discarded.name)
    elif lake.table(facts.discarded.name).exists():
        _decode_discarded(lake, as_written(lake, facts))
    for name in places:
        lake.table(name).remove()
    return True


def _has_same_rows(lake: Lake, facts: Enrichment) -> bool:
    """Whether positions name the rows that they did when gold was made."""
    kept = kept_definition(lake, facts.gold_table) or {}
    return all(is_same(facts.definition.get(name), kept.get(name)) for name in (ROWS, "functions"))


def fits(lake: Lake, facts: Enrichment) -> bool:
    """Whether gold has the declared keys, day and types, so that a backfill can bring it to the declaration."""
    if not lake.table(facts.gold_table).exists():
        return True
    gold = gold_of(lake, facts)
    declared, kept = declared_definition(gold), kept_definition(lake, gold.name)
    is_same = kept is None or all(kept.get(name) == declared.get(name) for name in FIXED)
    differing = column_changes(lake.table(gold.name).schema, gold.schema)
    # A MERGE can't write a struct that lacks a column.
    return is_same and not any(stored and (declared or len(path) > 1) for path, stored, declared in differing)


def forget_progress(lake: Lake, stream: str, topic: Topic) -> None:
    """Forget how far a stream has read, and which messages it has rejected: it reads and checks all of them again."""
    lake.files.delete(lake.settings.checkpoint_path(stream))
    if lake.table(MALFORMED.name).exists():
        lake.table(MALFORMED.name).delta.delete(F.col("topic") == topic.name)


def _decode_discarded(lake: Lake, facts: Enrichment) -> None:
    """Make the discarded facts again from their messages, in one commit."""
    discarded = lake.table(facts.discarded.name)
    landed = lake.table(facts.topic.bronze_table).pin().rows.transform(decode_facts, enrichment=facts)
    kept = discarded.pin().rows.select("position", "reason", "missing", "attempts", "waiting_since")
    rows = valid_facts(landed, facts).join(kept, on="position").select(*facts.discarded.schema.names)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(discarded.path)
