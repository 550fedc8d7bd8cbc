"""Check declarations with Spark, and say what they would change in the tables that exist."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Literal, TypeVar

from pyspark.sql.types import StructType

from pulsar_lakehouse.gold.enrichment.declaration import FIXED as FIXED_IN_GOLD
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sql.checking import check_declarations
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.refresh import gold_table, is_redefined
from pulsar_lakehouse.gold.sql.statements import ROWS
from pulsar_lakehouse.jobs.impact import ALL, Impact, Touched
from pulsar_lakehouse.jobs.steps import declared_columns
from pulsar_lakehouse.pipeline.checks import OWN_TABLES
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import Project, refuse
from pulsar_lakehouse.pipeline.resolving import unresolved_enrichment, unresolved_entity
from pulsar_lakehouse.silver.entity import FIXED, Entity
from pulsar_lakehouse.spark.functions import DECLARED
from pulsar_lakehouse.tables.declared import Definition, Table
from pulsar_lakehouse.tables.definitions import (
    approve_losses,
    declared_definition,
    is_same,
    kept_definition,
    lost,
    renamed,
)
from pulsar_lakehouse.tables.evolution import ColumnChange, column_changes
from pulsar_lakehouse.tables.lake import Lake

Declared = TypeVar("Declared", Entity, Enrichment)

Kind = Literal["additive", "partial", "breaking"]
"""What a change does: it adds something; it changes columns, and what is made from them; or it changes which rows there
are, and so all that is made from the table."""

SEQUENCE = "sequence"
KEPT = "rows from before keep their values until it is rebuilt"
REFUSED = "refused until it is rebuilt"
HELD = "no run does it: new rows would have NULL there"
STAYS = "it stays, and is NULL in new rows"
RECOMPUTED = "the next refresh recomputes it"
UNDECLARED = "it stays as it is, and nothing writes it"
RENEWED = {REFUSED: "refused: declare it under another name", KEPT: RECOMPUTED}
"""What happens to a table that SQL declares, by what would to others."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference between a table and its declaration, and what happens because of it.

    `rebuild` is the table to rebuild for it, if a rebuild makes a difference.
    """

    table: str
    what: str
    then: str
    kind: Kind
    rebuild: str = ""
    loses: bool = False
    """Whether values would be lost or become NULL, so that it has to be approved."""
    columns: tuple[str, ...] = ()
    """The columns that change; none if it is about all of them."""
    downstream: Touched = field(default_factory=dict)


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
        by_table[entity.table.name] = list(_changes(lake, entity.table, FIXED))
        if entity.keeps_history and not lake.table(entity.history.name).is_created():
            by_table[entity.history.name] = [_new(entity.history.name, "run")]
    for facts in pipeline.enrichments:
        gold = gold_declared(facts)
        joined = [each.name for each in facts.joins]
        by_table[gold.name] = list(_changes(lake, gold, FIXED_IN_GOLD, joined=joined))
    for declared in pipeline.sql_tables:
        by_table[declared.name] = list(_changes_in_sql(lake, declared, in_sql[declared.name]))
    for name in sorted({*lake.names_in("silver"), *lake.names_in("gold")} - _own(pipeline)):
        by_table[name] = [Change(table=name, what="no longer declared", then=UNDECLARED, kind="breaking")]
    return {name: with_downstream(pipeline, found) for name, found in by_table.items()}


def gold_declared(facts: Enrichment) -> Table:
    return facts.gold({each.name: each.entity.table.schema for each in facts.joins})


def _own(pipeline: Pipeline) -> set[str]:
    """The tables of silver and gold that are declared, or that each lakehouse has."""
    shadows = {facts.shadow for facts in pipeline.enrichments}
    return {*_tables(pipeline.entities, pipeline.enrichments), *(each.name for each in pipeline.sql_tables)} | (
        shadows | {*OWN_TABLES}
    )


def with_downstream(pipeline: Pipeline, found: Sequence[Change]) -> list[Change]:
    """The changes, each with what it concerns behind its table. What only adds something concerns nothing."""
    impact = Impact(pipeline)
    histories = {each.table.name: each.history.name for each in pipeline.entities}

    def told(change: Change) -> Change:
        if change.kind == "additive" or change.then == UNDECLARED:
            return change
        tables = [change.table, *filter(None, [histories.get(change.table)])]
        behind = impact.behind(product(tables, change.columns or (ALL,)))
        kind: Kind = "breaking" if () in (behind.get(each) for each in tables) else change.kind
        return replace(change, kind=kind, downstream={to: of for to, of in behind.items() if to not in tables})

    return list(map(told, found))


def _changes(lake: Lake, table: Table, fixed: tuple[str, ...], *, joined: Collection[str] = ()) -> Iterator[Change]:
    """The changes of a table of silver or gold. `joined` are the columns that have rows of other tables."""
    if not lake.table(table.name).is_created():
        yield _new(table.name, "run")
        return
    kept, differing = kept_definition(lake, table.name), column_changes(lake.table(table.name).schema, table.schema)
    yield from compared(table.name, kept, declared_definition(table), differing, fixed=fixed, joined=joined)


def _new(table: str, step: str) -> Change:
    return Change(table=table, what="new", then=f"the next {step} makes it", kind="additive")


def compared(
    table: str,
    kept: Definition | None,
    declared: Definition,
    differing: Iterable[ColumnChange],
    *,
    fixed: Collection[str] = (),
    joined: Collection[str] = (),
    step: str = "run",
) -> Iterator[Change]:
    """How a table differs: by its columns, as `column_changes` gives them, and by what its rows were made from."""
    rebuild = table if step == "run" else ""
    gone, names = (lost(declared, kept), renamed(declared, kept)) if kept else ([], {})
    for path, stored, wanted in differing:
        if not _is_of_order(table, path, joined) and not (stored is None and path[0] in names.values()):
            yield _of_column(table, path, stored, wanted, joined, gone, names, step)
    if kept is None:
        then = f"the next {step} takes it to be made from today's declaration"
        yield Change(table=table, what="made by an earlier version", then=then, kind="additive")
        return
    for name in dict.fromkeys((*declared, *kept)):
        before, after = kept.get(name), declared.get(name)
        if not is_same(before, after) and not _is_told(name, kept, declared, names):
            then, is_null = REFUSED if name in fixed else KEPT, name.partition(" ")[2] in gone
            kind, columns = _reach(name, kept, declared, fixed)
            yield Change(
                table=table,
                what=_difference(name, before, after),
                then=HELD if is_null else then,
                kind=kind,
                rebuild=rebuild,
                loses=is_null,
                columns=columns,
            )


def _difference(name: str, before: str | None, after: str | None) -> str:
    function = DECLARED.get(name.rpartition("function ")[2])
    if function is not None and before is not None and after is not None:
        return f"{name}: another one, at {function.at}"
    if name == ROWS:
        return "other rows: another FROM, JOIN, WHERE or GROUP BY"
    return f"{name}: {after or 'none'} instead of {before or 'none'}"


def _is_told(name: str, kept: Definition, declared: Definition, names: Mapping[str, str]) -> bool:
    """Whether it is told as a column that comes or goes, or together with the lookup that does."""
    entry, _, within = name.partition(": ")
    is_lookup, named = entry.startswith(("lookup ", "match ")), entry.partition(" ")[2]
    if is_lookup and not within:
        return name not in declared or named in names.values()
    if is_lookup and not (entry in kept and entry in declared):
        return True
    is_new_or_gone = name not in kept or name not in declared
    return is_new_or_gone and re.search("(^|: )(column|field|function) ", name) is not None


def _is_of_order(table: str, path: Sequence[str], joined: Collection[str]) -> bool:
    """Whether `sequence_by` tells it better."""
    is_own = path[0] not in joined
    has_order = not is_own or table.startswith("silver.")
    return has_order and path[0 if is_own else 1 :][:1] == (SEQUENCE,)


def _of_column(
    table: str,
    path: Sequence[str],
    stored: str | None,
    wanted: str | None,
    joined: Collection[str],
    gone: Collection[str],
    names: Mapping[str, str],
    step: str,
) -> Change:
    """A column that comes or goes, or has another type."""
    name, is_own, is_lost = ".".join(path), path[0] not in joined, ".".join(path) in gone
    kind: Kind = "partial"
    columns: tuple[str, ...] = (name,)
    if stored is None:
        what, then = f"{name} {wanted} is added", f"the next {step} adds it; it is NULL in rows from before"
        kind = "additive"
    elif name in names:
        what, then, columns = f"{name} is probably renamed to {names[name]}", HELD, (name, names[name])
    elif wanted is None:
        what = f"{name} {stored} is no longer declared"
        then = HELD if is_lost else REFUSED if is_own and len(path) > 1 else STAYS
    else:
        what, then = f"{name} is {wanted} instead of {stored}", REFUSED
    rebuild = table if then in (REFUSED, HELD) and step == "run" else ""
    return Change(table=table, what=what, then=then, kind=kind, rebuild=rebuild, loses=is_lost, columns=columns)


def _reach(name: str, kept: Definition, declared: Definition, fixed: Collection[str]) -> tuple[Kind, tuple[str, ...]]:
    """Whether an entry of a definition is about some columns, which are returned, or about which rows there are."""
    entry, _, within = name.partition(": ")
    what, _, named = entry.partition(" ")
    if what == "column" and not within and name not in fixed:
        return "partial", (named,)
    if what == "field":
        return _of_columns([each for each, sql in declared.items() if _names(sql, named)])
    if function := re.fullmatch(r"(?:(.+ (.+)): )?function (\w+)", name):
        within, of, called = function.groups(default="")
        own = {
            each.removeprefix(f"{within}: "): sql
            for each, sql in declared.items()
            if each.rpartition(": ")[0] == within
        }
        return _of_columns([each for each, sql in own.items() if _names(sql, called)], f"{of}." if of else "")
    is_needed = ", required" in kept.get(entry, "") + declared.get(entry, "")
    if what in ("lookup", "match") and within.startswith("column "):
        return "partial", (f"{named}.{within.removeprefix('column ')}",)
    if what in ("lookup", "match") and not is_needed:
        return ("partial" if name in kept else "additive"), (named,)
    return "breaking", ()


def _names(sql: str, word: str) -> bool:
    return re.search(rf"(?i)\b{re.escape(word)}\b", sql) is not None


def _of_columns(entries: Sequence[str], of: str = "") -> tuple[Kind, tuple[str, ...]]:
    """What a change is about that concerns these entries: columns, if they are of columns only."""
    columns = tuple(f"{of}{each.partition(' ')[2]}" for each in entries if each.startswith("column "))
    return ("partial", columns) if len(columns) == len(entries) and columns else ("breaking", ())


def _changes_in_sql(lake: Lake, declared: SqlTable, columns: StructType) -> Iterator[Change]:
    table = gold_table(declared, columns)
    if not lake.table(table.name).is_created():
        yield _new(table.name, "refresh")
        return
    differing, kept = column_changes(lake.table(table.name).schema, columns), kept_definition(lake, table.name)
    for each in compared(table.name, kept, declared_definition(table), differing, step="refresh"):
        yield replace(each, then=RENEWED.get(each.then, each.then))
    if kept is None and is_redefined(lake, declared):
        yield Change(table=table.name, what="another SELECT or other keys", then=RECOMPUTED, kind="breaking")


def approve_all(lake: Lake, project: Project, in_sql: dict[str, StructType]) -> Iterator[str]:
    """Accept that new rows have no values in columns that tables have; yields a line for each table."""
    pipeline = project.pipeline
    tables = [table for each in pipeline.entities for table in (each.table, each.history)]
    tables += [gold_declared(facts) for facts in pipeline.enrichments]
    tables += [gold_table(declared, in_sql[declared.name]) for declared in pipeline.sql_tables]
    for table in tables:
        if lake.table(table.name).is_created() and (gone := approve_losses(lake, table)):
            yield f"{table.name}: approved that new rows have NULL in {', '.join(gone)}"
