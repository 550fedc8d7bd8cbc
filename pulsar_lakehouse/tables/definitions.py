"""Keeps beside a table what its rows were made from: the SQL and the names of its declaration."""

import json
from collections.abc import Sequence

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.tables.declared import MADE_FROM, Definition, Table, made_from
from pulsar_lakehouse.tables.lake import Lake


def declared_definition(table: Table) -> Definition:
    definition: Definition = json.loads(table.properties[MADE_FROM])
    return definition


def kept_definition(lake: Lake, name: str) -> Definition | None:
    """What the rows of an existing table were made from; None if an earlier version has created it."""
    kept = lake.table(name).delta_property(MADE_FROM)
    definition: Definition | None = json.loads(kept) if kept else None
    return definition


def keep_definition(lake: Lake, name: str, definition: Definition) -> None:
    """Note that all rows of a table are made from this definition now."""
    if kept_definition(lake, name) != definition:
        lake.table(name).set_properties(made_from(definition))


def refuse_other(lake: Lake, table: Table, fixed: Sequence[str], *, rebuild: str) -> None:
    """Raise ConfigurationError if a table exists and something `fixed` differs from what its rows were made from.

    `rebuild` is the table to rebuild then. A table that an earlier version has created is taken to be made from the
    present declaration.
    """
    if not lake.table(table.name).is_created():
        return
    declared, kept = declared_definition(table), kept_definition(lake, table.name)
    if kept is None:
        keep_definition(lake, table.name, declared)
        return
    for name in fixed:
        if declared.get(name) != kept.get(name):
            raise ConfigurationError(
                f"{table.name}: {name} is {declared.get(name) or 'nothing'}, but its rows were made with "
                f"{kept.get(name) or 'nothing'}: keep that, or run `{rebuild_command([rebuild])}`"
            )


def rebuild_command(tables: Sequence[str]) -> str:
    return f"lakehouse rebuild {' '.join(tables)} --approve"
