"""Check declarations with Spark, and say what they would change in the tables that exist."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pyspark.sql.types import StructType

from pulsar_lakehouse.gold.enrichment.declaration import FIXED as FIXED_IN_GOLD
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sql.checking import check_declarations
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.refresh import gold_table, is_redefined
from pulsar_lakehouse.jobs.steps import declared_columns
from pulsar_lakehouse.pipeline.loading import Project, refuse
from pulsar_lakehouse.pipeline.resolving import unresolved_enrichment, unresolved_entity
from pulsar_lakehouse.silver.entity import FIXED, Entity
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.definitions import declared_definition, kept_definition
from pulsar_lakehouse.tables.evolution import column_changes
from pulsar_lakehouse.tables.lake import Lake

Declared = TypeVar("Declared", Entity, Enrichment)

SEQUENCE = "sequence"
KEPT = "rows from before keep their values until it is rebuilt"
REFUSED = "refused until it is rebuilt"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference between a table and its declaration, and what happens because of it.

    `rebuild` is the table to rebuild for it, if a rebuild makes a difference.
    """

    table: str
    what: str
    then: str
    rebuild: str = ""


def resolve(lake: Lake, project: Project) -> dict[str, StructType]:
    """Resolve the SQL of all declarations on empty frames; returns the columns of the tables that SQL files declare.

    Raises DeclarationsError with a line for each mistake. What only follows from another mistake is left out.
    """
    pipeline = project.pipeline
    wrong: list[str] = []
    entities = tuple(_right(pipeline.entities, partial(unresolved_entity, lake.spark), project, wrong))
    joined = (each for each in pipeline.enrichments if all(join.entity in entities for join in each.joins))
    enrichments = tuple(_right(joined, partial(unresolved_enrichment, lake.spark), project, wrong))
    columns = declared_columns(replace(pipeline, entities=entities, enrichments=enrichments))
    unknown = _tables(pipeline.entities, pipeline.enrichments) - columns.keys()
    in_sql, mistakes = check_declarations(lake, pipeline.sql_tables, columns, unknown=unknown)
    wrong += mistakes
    refuse(wrong)
    return in_sql


def _right(
    declared: Iterable[Declared], mistakes: Callable[[Declared], Iterator[str]], project: Project, wrong: list[str]
) -> Iterator[Declared]:
    """The declarations without mistakes. Those of the others are added to `wrong`."""
    for each in declared:
        lines = [f"{project.place(each)}: {line}" for line in mistakes(each)]
        wrong += lines
        if not lines:
            yield each


def _tables(entities: Iterable[Entity], enrichments: Iterable[Enrichment]) -> set[str]:
    silver = {name for each in entities for name in (each.table.name, each.history.name)}
    return silver | {name for each in enrichments for name in each.places}


def changes(lake: Lake, project: Project, in_sql: dict[str, StructType]) -> dict[str, list[Change]]:
    """By table: how what exists differs from the declarations. `in_sql` is what `resolve` returns."""
    pipeline, by_table = project.pipeline, dict[str, list[Change]]()
    for entity in pipeline.entities:
        by_table[entity.table.name] = list(_changes(lake, entity.table, FIXED, entity.table.name))
        if entity.keeps_history and not lake.table(entity.history.name).is_created():
            by_table[entity.history.name] = [_new(entity.history)]
    for facts in pipeline.enrichments:
        gold = facts.gold({each.name: each.entity.table.schema for each in facts.joins})
        joined = [each.name for each in facts.joins]
        by_table[gold.name] = list(_changes(lake, gold, FIXED_IN_GOLD, gold.name, joined=joined))
    for declared in pipeline.sql_tables:
        by_table[declared.name] = list(_changes_in_sql(lake, declared, in_sql[declared.name]))
    return by_table


def _changes(
    lake: Lake, table: Table, fixed: tuple[str, ...], rebuild: str, *, joined: Collection[str] = ()
) -> Iterator[Change]:
    """The changes of a table of silver or gold. `joined` are the columns that have rows of other tables."""
    if not lake.table(table.name).is_created():
        yield _new(table)
        return
    of_columns = list(_column_changes(lake, table, "run", joined))
    yield from (replace(each, rebuild=rebuild if each.then == REFUSED else "") for each in of_columns)
    declared, kept = declared_definition(table), kept_definition(lake, table.name)
    if kept is None:
        then = "the next run takes it to be made from today's declaration"
        yield Change(table=table.name, what="made by an earlier version", then=then)
        return
    for name in dict.fromkeys((*declared, *kept)):
        before, after = kept.get(name), declared.get(name)
        is_told = None in (before, after) and re.search("(^|: )(column|field) ", name)  # as a column that comes or goes
        if before != after and not is_told:
            what = f"{name}: {after or 'none'} instead of {before or 'none'}"
            yield Change(table=table.name, what=what, then=REFUSED if name in fixed else KEPT, rebuild=rebuild)


def _new(table: Table) -> Change:
    return Change(table=table.name, what="new", then="the next run makes it")


def _column_changes(lake: Lake, table: Table, step: str, joined: Collection[str] = ()) -> Iterator[Change]:
    for path, stored, declared in column_changes(lake.table(table.name).schema, table.schema):
        name, is_own = ".".join(path), path[0] not in joined
        has_order = not is_own or table.name.startswith("silver.")
        if has_order and path[0 if is_own else 1 :][:1] == (SEQUENCE,):
            continue  # `sequence_by` says it better
        if stored is None:
            what, then = f"{name} {declared} is added", f"the next {step} adds it; it is NULL in rows from before"
        elif declared is None:
            what = f"{name} {stored} is no longer declared"
            then = REFUSED if is_own and len(path) > 1 else "it stays, and is NULL in new rows"
        else:
            what, then = f"{name} is {declared} instead of {stored}", REFUSED
        yield Change(table=table.name, what=what, then=then)


def _changes_in_sql(lake: Lake, declared: SqlTable, columns: StructType) -> Iterator[Change]:
    table = gold_table(declared, columns)
    if not lake.table(table.name).is_created():
        yield Change(table=table.name, what="new", then="the next refresh makes it")
        return
    for each in _column_changes(lake, table, "refresh"):
        yield replace(each, then="refused: declare it under another name") if each.then == REFUSED else each
    if is_redefined(lake, declared):
        yield Change(table=table.name, what="another SELECT or other keys", then="the next refresh recomputes it")
