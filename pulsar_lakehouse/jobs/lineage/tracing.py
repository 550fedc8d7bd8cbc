"""Where columns come from, and when each table was last written."""

from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.lineage.flows import Flow, flows
from pulsar_lakehouse.jobs.lineage.kept import LastRun, last_run
from pulsar_lakehouse.jobs.lineage.origins import Column, Origin
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Source:
    """A column, the SQL that makes it if it is not a copy, and the columns that it is made from."""

    name: str
    sql: str
    sources: tuple["Source", ...]


def trace_columns(pipeline: Pipeline, name: str) -> list[Source]:
    """Where the columns of a table come from, or a column and its fields. A name is `gold.orders` or `gold.orders.id`.

    Raises ConfigurationError for what is not declared.
    """
    columns = {table: made for flow in flows(pipeline) for table, made in flow.columns.items()}
    table = next((each for each in columns if name == each or name.startswith(f"{each}.")), None)
    if table is None:
        raise ConfigurationError(f"{name}: must be one of {', '.join(columns)}, or a column of it")
    column = name.removeprefix(table).removeprefix(".")
    found = [each for each in columns[table] if not column or each == column or each.startswith(f"{column}.")]
    if not found:
        raise ConfigurationError(f"{name}: no such column is declared; there are {', '.join(columns[table])}")
    return [_source((table, each), columns) for each in found]


def _source(column: Column, columns: Mapping[str, Mapping[str, Origin]]) -> Source:
    table, name = column
    known, declared = columns.get(table, {}), name
    while declared and declared not in known:
        declared = declared.rpartition(".")[0]  # a field of it
    fields = tuple((table, each) for each in known if each.startswith(f"{name}."))
    made = known.get(declared, Origin(columns=fields))
    return Source(name=f"{table}.{name}", sql=made.sql, sources=tuple(_source(each, columns) for each in made.columns))


def last_runs(settings: Settings, pipeline: Pipeline) -> dict[str, tuple[Flow, LastRun | None]]:
    """By table, topic or sink that a step writes: the step, and its last run."""
    told = [(flow, last_run(settings, flow.step)) for flow in flows(pipeline)]
    return {name: (flow, last) for flow, last in told for name in flow.writes}
