"""Keeps beside a table what its rows were made from: the SQL and the names of its declaration."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache

import sqlglot
from sqlglot.errors import SqlglotError

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.tables.declared import MADE_FROM, Definition, Table, made_from
from pulsar_lakehouse.tables.lake import Lake

VALUE = re.compile(r"(column|lookup|match) \w+")
"""Matches the name in a definition of what has a column of its own."""
MADE_BY = re.compile(rf"{VALUE.pattern}|(.+: )?function \w+")
"""Matches these, and the functions that are called for them."""
NOTHING = re.compile(r"\s*(NULL(\s*::.+)?|(TRY_)?CAST\s*\(\s*NULL\s+AS\s+.+\))\s*", re.IGNORECASE)
"""Matches SQL that is NULL in each row."""


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


def refuse_other(lake: Lake, table: Table, fixed: Sequence[str], *, rebuild: str = "") -> None:
    """Raise ConfigurationError if the rows of a table that exists can't follow its declaration.

    That is so if something `fixed` differs from what they were made from, or if a value would be lost that they have.
    `rebuild` is the table to rebuild then, if that helps. A table that an earlier version has created is taken to be
    made from the present declaration.
    """
    if not lake.table(table.name).is_created():
        return
    declared, kept = declared_definition(table), kept_definition(lake, table.name)
    if kept is None:
        keep_definition(lake, table.name, declared)
        return
    for name in fixed:
        if not is_same(declared.get(name), kept.get(name)):
            raise ConfigurationError(
                f"{table.name}: {name} is {declared.get(name) or 'nothing'}, but its rows were made with "
                f"{kept.get(name) or 'nothing'}: keep that, or run `{rebuild_command([rebuild])}`"
            )
    if gone := lost(declared, kept):
        names = renamed(declared, kept)
        told = (f"{each} is probably renamed to {names[each]}" if each in names else f"{each} is gone" for each in gone)
        again = f", run `{rebuild_command([rebuild])}`," if rebuild else ""
        raise ConfigurationError(
            f"{table.name}: {', '.join(told)}: new rows would have NULL there: declare it as before{again} or accept "
            f"that by `{APPROVE}`"
        )
    if come := {name: sql for name, sql in declared.items() if MADE_BY.fullmatch(name) and _has_come(name, sql, kept)}:
        keep_definition(lake, table.name, {**kept, **come})


def _has_come(name: str, sql: str, kept: Definition) -> bool:
    """Whether rows have values there, or are made by it, from now on."""
    return name not in kept or (NOTHING.fullmatch(kept[name]) is not None and not NOTHING.fullmatch(sql))


APPROVE = "lakehouse plan --approve"


def rebuild_command(tables: Sequence[str]) -> str:
    return f"lakehouse rebuild {' '.join(tables)} --approve"


def is_same(sql: str | None, other: str | None) -> bool:
    """Whether two texts of definitions are the same SQL, whatever their spaces, comments and case of keywords."""
    return sql == other or (None not in (sql, other) and _normal(str(sql)) == _normal(str(other)))


@cache
def _normal(sql: str) -> str:
    try:
        return sqlglot.parse_one(f"SELECT {sql}", dialect="spark").sql("spark", comments=False)
    except SqlglotError:  # it is a list of names, say, or something that only Spark reads
        return " ".join(sql.split())


def lost(declared: Definition, kept: Definition) -> list[str]:
    """The columns, and those of joins, that rows have and new ones would have no more, or as NULL."""
    names = [name for name, sql in kept.items() if VALUE.fullmatch(name) and not NOTHING.fullmatch(sql)]
    gone = (name for name in names if NOTHING.fullmatch(declared.get(name, "NULL")))
    of_order = {each for name in ("key", "sequence_by") for each in _aliases(declared.get(name, ""))}
    return [column for name in gone if (column := name.partition(" ")[2]) not in of_order]


@cache
def _aliases(sql: str) -> frozenset[str]:
    """The names of the columns that SQL such as `id, upper(city) AS city` makes."""
    try:
        made = sqlglot.parse_one(f"SELECT {sql}", dialect="spark").expressions
        return frozenset(each.alias_or_name for each in made)
    except SqlglotError:
        return frozenset()


def renamed(declared: Definition, kept: Definition) -> dict[str, str]:
    """By column that is lost, the new one that it has probably become: of the same SQL, or of a field in its place."""
    gone, come = lost(declared, kept), [name for name in declared if VALUE.fullmatch(name) and name not in kept]
    fields = dict(_renamed_fields(declared, kept))
    found: dict[str, str] = {}
    for name in gone:
        before = next(sql for kind in ("column", "lookup", "match") if (sql := kept.get(f"{kind} {name}")) is not None)
        moved = re.sub(r"\w+", lambda word: fields.get(word[0], word[0]), before)
        left = {each: declared[each] for each in come if each.partition(" ")[2] not in found.values()}
        same = [each for each, sql in left.items() if is_same(sql, before) or is_same(sql, moved)]
        alike = [each for each, sql in left.items() if _words(before) and _words(before) == _words(sql)]
        if likely := (same or alike):
            found[name] = likely[0].partition(" ")[2]
    return found


def _renamed_fields(declared: Definition, kept: Definition) -> Iterator[tuple[str, str]]:
    """Fields of the topic that went, each with the one of its type that came, if it is the only one."""
    went = {name: kind for name, kind in kept.items() if name.startswith("field ") and name not in declared}
    came = {name: kind for name, kind in declared.items() if name.startswith("field ") and name not in kept}
    for name, kind in went.items():
        same = [each for each, other in came.items() if other == kind]
        if len(same) == 1 and [*went.values()].count(kind) == 1:
            yield name.removeprefix("field "), same[0].removeprefix("field ")


def _words(sql: str) -> frozenset[str]:
    """The names of columns in SQL."""
    try:
        tree = sqlglot.parse_one(sql, dialect="spark")
    except SqlglotError:
        return frozenset()
    return frozenset(each.sql() for each in tree.find_all(sqlglot.exp.Column))


def approve_losses(lake: Lake, table: Table) -> list[str]:
    """Accept that new rows have no values in columns that are lost; returns their names."""
    declared, kept = declared_definition(table), kept_definition(lake, table.name)
    gone = lost(declared, kept) if kept else []
    if kept and gone:
        values = {name for name in kept if VALUE.fullmatch(name) and name.partition(" ")[2] in gone}
        keep_definition(lake, table.name, {name: sql for name, sql in kept.items() if name not in values})
    return gone
