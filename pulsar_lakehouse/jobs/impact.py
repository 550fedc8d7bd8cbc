"""What a change concerns downstream: the tables, topics and sinks that have columns made from those that change.

A column that decides which rows there are, such as one in a WHERE, a GROUP BY or a check that quarantines, concerns all
columns behind it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pulsar_lakehouse.contracts.checks import Mode, of_mode
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.jobs.lineage.flows import Flow, column_names, flows
from pulsar_lakehouse.jobs.lineage.origins import Column, deciding
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.graph import nodes

ALL = ""
"""Stands for all columns of a table: other rows are in it."""
Touched = Mapping[str, Sequence[str]]
"""By table, topic or sink, the columns that change; none if all do."""


@dataclass(frozen=True)
class Impact:
    """The lineage of a pipeline, from what changes to what is made from it."""

    pipeline: Pipeline

    def behind(self, changed: Iterable[Column]) -> Touched:
        """What is made from these columns, in the order of the pipeline. `ALL` is a column, too."""
        start = list(changed)
        seen, todo = set(start), list(start)
        while todo:
            for reached in self._next(*todo.pop()):
                if reached not in seen and reached[0] in self._names:
                    seen.add(reached)
                    todo.append(reached)
        found = {name: {column for table, column in seen - set(start) if table == name} for name in self._names}
        return {name: () if ALL in columns else _outermost(columns) for name, columns in found.items() if columns}

    @cached_property
    def _names(self) -> list[str]:
        return [node.name for node in nodes(self.pipeline)]

    @cached_property
    def _flows(self) -> list[Flow]:
        return flows(self.pipeline)

    @cached_property
    def _deciding(self) -> dict[str, set[Column]]:
        """By SQL table."""
        known = column_names(self.pipeline)
        return {table.name: deciding(table, known) for table in self.pipeline.sql_tables}

    @cached_property
    def _facts(self) -> dict[str, Enrichment]:
        return {facts.gold_table: facts for facts in self.pipeline.enrichments}

    @cached_property
    def _keys_in_sql(self) -> dict[str, tuple[str, ...]]:
        return {table.name: table.keys for table in self.pipeline.sql_tables}

    def _next(self, table: str, column: str) -> Iterator[Column]:
        if column and table in self._facts:
            yield from _within_gold(self._facts[table], column)
        for entity in self.pipeline.entities:
            checks = of_mode(entity.checks, Mode.QUARANTINE).values()
            if table == entity.table.name and any(column.lower() in check.columns for check in checks):
                yield from ((name, ALL) for name in (table, entity.history.name))
        if column in self._keys_in_sql.get(table, ()):
            yield table, ALL
        for flow in self._flows:
            if table in flow.reads:
                yield from self._written(flow, table, column)

    def _written(self, flow: Flow, table: str, column: str) -> Iterator[Column]:
        decides = (name for written in flow.writes for of, name in self._deciding.get(written, ()) if of == table)
        if not column or any(_is_part(column, name) for name in decides):
            yield from ((written, ALL) for written in flow.writes)
            return
        for written, made in flow.columns.items():
            for name, origin in made.items():
                if any(of == table and _is_part(column, each) for of, each in origin.columns):
                    yield written, name
            if not written.startswith(("silver.", "gold.")):
                yield written, column  # a sink has the columns of its table, and also those that go
        for facts in (self._facts[each] for each in flow.writes if each in self._facts):
            yield from ((facts.gold_table, f"{each.name}.{column}") for each in facts.joins if each.table == table)


def _within_gold(facts: Enrichment, column: str) -> Iterator[Column]:
    """What else of enriched facts changes with a column of them."""
    checks = of_mode(facts.checks, Mode.QUARANTINE).values()
    if column in (facts.event_time, *facts.keys) or any(column.lower() in check.columns for check in checks):
        yield facts.gold_table, ALL
    for join in facts.joins:
        if any(_is_part(column, path) for path in join.paths):
            yield facts.gold_table, ALL if join.required else join.name


def _is_part(column: str, other: str) -> bool:
    """Whether one of two columns is the other, or a field of it."""
    one, two = column.lower(), other.lower()
    return one == two or one.startswith(f"{two}.") or two.startswith(f"{one}.")


def _outermost(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns without those that are fields of others."""
    given = set(columns)
    return tuple(sorted(each for each in given if not any(each.startswith(f"{other}.") for other in given)))
