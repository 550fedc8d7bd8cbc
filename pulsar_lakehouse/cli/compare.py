"""`lakehouse compare`: whether tables are equal to those in Postgres that they replicate."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import typer

from pulsar_lakehouse.access import MASK, Reader
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen, seconds
from pulsar_lakehouse.contracts.sources import Postgres
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError, ReconciliationError
from pulsar_lakehouse.inspection.comparison import Comparison, Difference, Replica, compare
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.stored import is_stored


def compare_command(
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Such as silver.customers. Default: those known to be from Postgres."),
    ] = None,
    original: Annotated[
        str, typer.Option("--with", help="A table such as public.customers, or a SELECT in parentheses.")
    ] = "",
    wait: Annotated[
        str, typer.Option(help="Look again at rows that differ, after each run within this time, such as 10m.")
    ] = "",
) -> None:
    """Compare tables with those in Postgres that they replicate, by key; exit with 1 if one differs.

    LAKEHOUSE_POSTGRES__URL says which Postgres. Default for --with: the table that is a source, the one after which
    Debezium has named the topic, the one to which a gold table is published, or else one of the same name. Does not
    start Spark.
    """
    settings = load_settings()
    for_seconds = seconds(wait, option="--wait") if wait else 0
    pipeline, reader = pipeline_of(settings), operator_of(settings)
    names = tables or [entity.table.name for entity in pipeline.entities if _replicated(entity)]
    if not names:
        raise ConfigurationError("nothing is declared to be from Postgres: name the tables, such as silver.customers")
    if original and len(names) > 1:
        raise ConfigurationError(f"--with {original}: is for one table, not for {', '.join(names)}")
    unequal = []
    for replica in chosen(names, {each.table: each for each in replicas(pipeline)}):
        if not is_stored(settings, replica.table):
            raise LakehouseError(f"{replica.table} is not there yet: run `lakehouse run` first")
        replica = replace(replica, original=original or replica.original)
        found = compare(settings, replica, wait=for_seconds)
        line = f"{replica.table} and {replica.original}: {summary(found)}"
        report.note([line], settings)
        report.say(line)
        show(replica, found, reader)
        unequal += [line] if found.differences else []
    if unequal:
        raise ReconciliationError(". ".join(unequal))


def _replicated(entity: Entity) -> str:
    """The table in Postgres that an entity is known to be from; empty if none is."""
    if isinstance(entity.source, Postgres):
        return entity.source.original
    path = entity.topic.own_name.rpartition("/")[2].split(".")
    return ".".join(path[-2:]) if entity.topic.envelope and not entity.topic.is_several else ""


def replicas(pipeline: Pipeline) -> Iterator[Replica]:
    """The tables that can be compared."""
    for entity in pipeline.entities:
        yield Replica(
            table=entity.table.name,
            keys=entity.keys,
            columns=tuple(entity.columns),
            where="deleted_at IS NULL OR deleted_at > now()",
            original=_replicated(entity) or entity.name,
        )
    for facts in pipeline.enrichments:
        yield Replica(table=facts.gold_table, keys=facts.keys, original=facts.gold_table.partition(".")[2])
    for table in pipeline.sql_tables:
        yield Replica(table=table.name, keys=table.keys, original=table.postgres or table.file.stem)


def values_of(
    each: Difference, example: Sequence[str | None], keys: Sequence[str], tables: Sequence[str], reader: Reader
) -> Iterator[str]:
    """The values of an example, of which those that are masked in one of the tables: of the key, here and there."""
    for name, value in zip((*keys, each.what, each.what), example, strict=True):
        yield MASK if any(reader.hides(table, name) for table in tables) else "NULL" if value is None else value


def summary(found: Comparison) -> str:
    sides = f"{found.only_here:,} only here, {found.only_there:,} only there"
    return f"{found.equal:,} rows are equal, {found.differ:,} differ, {sides}"


def show(replica: Replica, found: Comparison, reader: Reader) -> None:
    """Print which columns were compared, at which version, and how the rows differ, with a few of them."""
    report.say(f"  compared at version {found.version}, by {', '.join(replica.keys)}: {', '.join(found.columns)}")
    for why, columns in found.left_out.items():
        if columns:
            report.say(f"  {why}: {', '.join(columns)}")
    rows = (
        (each.what, f"{each.rows:,}", *values_of(each, example, replica.keys, [replica.table], reader))
        for each in found.differences
        for example in each.examples
    )
    if found.differences:
        report.rows(("what differs", "rows", *(f"such as {key}" for key in replica.keys), "here", "there"), rows)
