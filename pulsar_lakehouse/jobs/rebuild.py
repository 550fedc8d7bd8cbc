"""Rebuild tables of silver and gold from bronze, with the present declarations.

Bronze has all that landed, so nothing is lost. Checkpoints go first and tables after them: whatever is removed when a
rebuild is killed, the next run makes again, and a rebuild that is repeated begins from the start.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import ROWS, Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.backfill import Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import FIXED, Enrichment
from pulsar_lakehouse.gold.enrichment.enrich import gold_of
from pulsar_lakehouse.gold.enrichment.facts import decode_facts, valid_facts
from pulsar_lakehouse.jobs.lineage.flows import enriched
from pulsar_lakehouse.jobs.lineage.runs import told
from pulsar_lakehouse.jobs.steps import as_written, enriching, merging, require
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.definitions import (
    approve_losses,
    declared_definition,
    is_same,
    keep_definition,
    kept_definition,
)
from pulsar_lakehouse.tables.evolution import column_changes
from pulsar_lakehouse.tables.lake import Lake


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The entities and facts to rebuild, and the SQL tables that are made from their tables."""

    entities: tuple[Entity, ...]
    enrichments: tuple[Enrichment, ...]
    sql_tables: tuple[str, ...]

    @property
    def written(self) -> list[str]:
        """The tables whose leases a rebuild must hold."""
        return [*(each.table.name for each in self.entities), *(each.gold_table for each in self.enrichments)]


def wanted(pipeline: Pipeline, names: Sequence[str]) -> Wanted:
    """The tables with these names, and those that depend on them. Raises ConfigurationError for any other name."""
    entities = [each.table.name for each in pipeline.entities]
    entities += [each.history.name for each in pipeline.entities if each.keeps_history]
    enrichments = {each.gold_table: each for each in pipeline.enrichments}
    for name in names:
        if name not in entities and name not in enrichments:
            raise ConfigurationError(
                f"{name}: can't be rebuilt; there are {', '.join((*entities, *enrichments))}; "
                "`lakehouse refresh --full` recomputes tables declared in SQL"
            )
    chosen = tuple(each for each in pipeline.entities if {each.table.name, each.history.name} & set(names))
    made = {name for each in chosen for name in (each.table.name, each.history.name)}
    facts = tuple(each for name, each in enrichments.items() if name in names or not made.isdisjoint(each.state_tables))
    made |= {name for each in facts for name in each.places}
    in_sql = []
    for table in pipeline.sql_tables:
        if not made.isdisjoint(table.sources):
            in_sql.append(table.name)
            made.add(table.name)
    return Wanted(entities=chosen, enrichments=facts, sql_tables=tuple(in_sql))


def rebuild(lake: Lake, tables: Wanted) -> Iterator[str]:
    """Rebuild silver, then gold; yields what was done, a line for each. This process must hold all leases."""
    require(lake, [each.topic.bronze_table for each in tables.entities], made_by="run")
    for each in tables.enrichments:
        forget_progress(lake, each.gold_table, each.topic)
    for entity in tables.entities:
        forget_progress(lake, entity.table.name, entity.topic)
        for name in (entity.history.name, entity.table.name):  # the last one refuses a run with another key or order
            lake.table(name).remove()
        catch_up(lake.settings, merging(lake, [entity]))
        yield f"{entity.table.name}: made again from {entity.topic.bronze_table}"
    for each in tables.enrichments:
        if not all(lake.table(name).exists() for name in (each.topic.bronze_table, *each.state_tables)):
            continue  # it never ran
        how, is_new = f"made again from {each.topic.bronze_table}", begin_again_unless_fits(lake, each)
        if not is_new and lake.table(each.gold_table).exists():
            approve_losses(lake, gold_of(lake, each))  # the backfill gives all rows the values of today's columns
        catch_up(lake.settings, enriching(lake, [each]))
        if not is_new:
            with told(lake.settings, replace(enriched(each), step=f"backfill {each.topic.name}")):
                difference = backfill(lake, as_written(lake, each), Scope())
            keep_definition(lake, each.gold_table, each.definition)
            how = f"{difference.changed:,} facts changed"
        waiting = lake.table(each.waiting.name).read().count()
        yield f"{each.gold_table}: {how}, {waiting:,} wait"
        if is_new and each.publish_to:
            yield publish_again(each.publish_to)


def publish_again(topic: str) -> str:
    """What to do about the topic of a table that is made again."""
    return f"The topic {topic} has the messages of the old table: delete it before you publish again"


def begin_again_unless_fits(lake: Lake, facts: Enrichment) -> bool:
    """Remove gold and its quarantine if they can't be changed row by row; returns whether they were removed.

    Discarded facts stay discarded, unless messages have other rows now. Gold goes last: it refuses a run with other
    keys or another day.
    """
    if fits(lake, facts):
        return False
    places = [facts.duplicates.name, facts.waiting.name, facts.gold_table]
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
