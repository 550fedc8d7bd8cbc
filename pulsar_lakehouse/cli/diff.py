"""`lakehouse diff`: rows and values that differ between two versions, snapshots or tables."""

import re
from collections.abc import Mapping
from typing import Annotated

import typer

from pulsar_lakehouse.access import Reader
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.compare import replicas, values_of
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.inspection.comparison import Comparison
from pulsar_lakehouse.inspection.differences import Side, compare_versions
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.jobs.snapshots import Snapshot, named
from pulsar_lakehouse.near import did_you_mean
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.stored import is_stored, stored_table, table_names


def diff_command(
    before: Annotated[
        str, typer.Argument(help="A table, a version such as gold.orders@12 or gold.orders@SNAPSHOT, or a snapshot.")
    ],
    after: Annotated[str, typer.Argument(help="Such another. Default: what is there now.")] = "",
    by: Annotated[
        str, typer.Option(help="The columns that identify a row, such as id,day. Default: the declared keys.")
    ] = "",
) -> None:
    """Show which rows and values differ between two versions, snapshots or tables, by key. Does not start Spark."""
    settings = load_settings()
    keys = {each.table: each.keys for each in replicas(pipeline_of(settings))}
    reader = operator_of(settings)
    for here, there in _sides(settings, before, after, keys):
        given = tuple(each.strip() for each in by.split(",")) if by else keys.get(here.table, ())
        if not given:
            raise ConfigurationError(
                f"{here.table}: no keys are declared: name the columns that identify a row with --by"
            )
        found = compare_versions(settings, here, there, given)
        report.say(f"{here.name} and {there.name}: {_summary(found, here, there)}")
        _show(found, here, there, given, reader)


def _sides(settings: Settings, before: str, after: str, keys: Mapping[str, tuple[str, ...]]) -> list[tuple[Side, Side]]:
    """What is compared with what. Of snapshots, the tables that have keys and are in both, or are there now."""
    if "." in before.partition("@")[0]:
        here = _side(settings, before)
        return [(here, _side(settings, after) if after else Side(table=here.table))]
    first, second = named(settings, before), named(settings, after) if after else None
    tables = [name for name in keys if name in first.tables and (second is None or name in second.tables)]
    now = (name for name in tables if is_stored(settings, name))
    return [(_of(settings, first, name), _of(settings, second, name) if second else Side(table=name)) for name in now]


def _side(settings: Settings, text: str) -> Side:
    """The table, or the version of it, that a text such as `gold.orders@12` names."""
    table, _, version = text.partition("@")
    if not re.fullmatch(r"\w+\.\w+", table):
        raise ConfigurationError(f"{text}: must be a table such as gold.orders, or gold.orders@12")
    if not is_stored(settings, table):
        raise ConfigurationError(f"{table}: no such table{did_you_mean(table, table_names(settings))}")
    if not version:
        return Side(table=table)
    return (
        Side(table=table, version=int(version)) if version.isdigit() else _of(settings, named(settings, version), table)
    )


def _of(settings: Settings, snapshot: Snapshot, table: str) -> Side:
    """The version of a table that a snapshot has."""
    kept = snapshot.tables.get(table)
    if kept is None:
        raise ConfigurationError(f"{snapshot.name}: has no {table}; there are {', '.join(snapshot.tables)}")
    if kept.id != str(stored_table(settings, table).metadata().id):
        raise ConfigurationError(f"{table}: was made again since the snapshot {snapshot.name}: its rows are gone")
    return Side(table=table, version=kept.version)


def _summary(found: Comparison, here: Side, there: Side) -> str:
    sides = f"{found.only_here:,} only in {here.name}, {found.only_there:,} only in {there.name}"
    return f"{found.equal:,} rows are equal, {found.differ:,} differ, {sides}"


def _show(found: Comparison, here: Side, there: Side, keys: tuple[str, ...], reader: Reader) -> None:
    """Print how many rows differ in each column, and a few of them; and the columns that were not compared."""
    sides = {"only here": f"only in {here.name}", "only there": f"only in {there.name}"}
    for why, columns in found.left_out.items():
        if columns:
            report.say(f"  columns {sides.get(why, why)}: {', '.join(columns)}")
    tables = (here.table, there.table)
    rows = (
        (sides.get(each.what, each.what), f"{each.rows:,}", *values_of(each, example, keys, tables, reader))
        for each in found.differences
        for example in each.examples
    )
    if found.differences:
        names = ("what differs", "rows", *(f"such as {key}" for key in keys), here.name, there.name)
        report.rows(names, rows)
