"""Which columns a column is made from, by its SQL."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.parsing import DIALECT, name_of, parsed
from pulsar_lakehouse.gold.sql.touching import is_aggregate

if TYPE_CHECKING:
    from sqlglot.lineage import Node

PLACE = ("partition", "ledger_id", "entry_id", "batch_index")
"""The columns of bronze that say where in its topic a message was."""
_OF_MESSAGE = {"position": PLACE, "is_tombstone": ("payload",)}
"""The columns of bronze that fields of `message` with another name come from."""

Column = tuple[str, str]
"""A table, or another thing that has columns, and the column's name."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The columns that a column is made from, and the SQL that makes it; no SQL if it is one of them, unchanged."""

    columns: tuple[Column, ...]
    sql: str = ""
    is_aggregate: bool = False


def origin(sql: str, topic: Topic) -> Origin:
    """The origin of a column that is declared by SQL over the fields of a topic and its message."""
    try:
        tree = sqlglot.parse_one(sql, dialect=DIALECT)
    except SqlglotError:  # Spark may still understand it
        return Origin(columns=(), sql=sql)
    found = [(topic.bronze_table, name) for name in _used(tree, topic)]
    is_same = len(found) == 1 and isinstance(tree, exp.Column) and (len(tree.parts) == 1 or tree.table == "message")
    return Origin(columns=tuple(dict.fromkeys(found)), sql="" if is_same else sql)


def _used(tree: exp.Expr, topic: Topic) -> Iterator[str]:
    """The columns of bronze that SQL uses. `row` is made from what the array is."""
    for node in tree.find_all(exp.Column):
        if topic.rows and node.parts[0].name.lower() == "row":
            with suppress(SqlglotError):
                array = sqlglot.parse_one(topic.rows, dialect=DIALECT)
                yield from (name for each in array.find_all(exp.Column) for name in _in_bronze(each, topic))
        else:
            yield from _in_bronze(node, topic)


def _in_bronze(node: exp.Column, topic: Topic) -> Iterator[str]:
    first, *others = (part.name.lower() for part in node.parts)
    if first == "message" and others:
        yield from _OF_MESSAGE.get(others[0], (others[0],))
    for name in topic.fields.names:
        if name.lower() == first:
            yield f"payload.{name}"


def origins_in_select(table: SqlTable, known: Mapping[str, Collection[str]]) -> dict[str, Origin]:
    """The origins of all columns of a SQL table. `known` has the columns of the tables that it may read.

    Empty if the SELECT can't be followed.
    """
    from sqlglot.lineage import lineage  # takes half a second

    tree = parsed(table.file, table.sql)
    if any(isinstance(each.this, exp.Subquery) for each in tree.find_all(exp.Lateral)):
        return {}  # sqlglot takes its columns for those of other tables
    try:
        found = lineage(None, tree, _as_schema(known), dialect=DIALECT)
    except Exception:  # `known` lacks a column, or sqlglot, which has no common error here, can't follow the SELECT
        try:
            found = lineage(None, tree, {}, dialect=DIALECT)
        except Exception:
            return {}
    assert isinstance(found, dict)
    names = {name.lower(): name for name in tree.named_selects}
    return {names.get(name, name): _origin_of(node, known) for name, node in found.items()}


def is_unfollowed(origin: Origin) -> bool:
    """Whether a column has no origin, and still is made from columns."""
    if origin.columns or not origin.sql:
        return not origin.columns
    nodes = sqlglot.parse_one(origin.sql, dialect=DIALECT).walk()
    return any(
        isinstance(node, exp.Column) or (isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count))
        for node in nodes
    )


def _as_schema(known: Mapping[str, Collection[str]]) -> dict[str, dict[str, dict[str, str]]]:
    schema: dict[str, dict[str, dict[str, str]]] = {}
    for name, columns in known.items():
        if not columns:  # with such a table, sqlglot follows nothing
            continue
        layer, _, table = name.partition(".")
        schema.setdefault(layer, {})[table] = {column.partition(".")[0]: "UNKNOWN" for column in columns}
    return schema


def _origin_of(root: "Node", known: Mapping[str, Collection[str]]) -> Origin:
    nodes = list(root.walk())
    found = [column for node in nodes for column in _read_by(node, known)]
    made = [node.expression.unalias() for node in nodes if not isinstance(node.source, exp.Table)]
    # A field that an outer query takes is not known by its path.
    is_same = len(found) == 1 and all(isinstance(each, exp.Column) for each in made[:-1]) and _is_path(made[-1])
    return Origin(
        columns=tuple(sorted(set(found))),
        sql="" if is_same else made[0].sql(DIALECT),
        is_aggregate=any(is_aggregate(node) for each in made for node in each.walk()),
    )


def _read_by(node: "Node", known: Mapping[str, Collection[str]]) -> Iterator[Column]:
    """The columns of tables that the expression of a node reads."""
    for leaf in node.downstream:
        if isinstance(leaf.source, exp.Table):
            table = name_of(leaf.source)
            declared = {name.lower(): name for name in known.get(table, ())}
            same = (each for each in node.expression.find_all(exp.Column) if each.sql(comments=False) == leaf.name)
            paths = [_path(each) for each in same] or [exp.to_column(leaf.name).name]
            yield from ((table, declared.get(path.lower(), path)) for path in paths)


def _is_path(node: exp.Expr) -> bool:
    while isinstance(node, exp.Dot):
        node = node.this
    return isinstance(node, exp.Column)


def _path(column: exp.Column) -> str:
    """The dotted name of the column, or of the field of it that is read."""
    path, node = [column.name], column.parent
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        path.append(node.expression.name)
        node = node.parent
    return ".".join(path)


def deciding(table: SqlTable, known: Mapping[str, Collection[str]]) -> set[Column]:
    """The columns that a SQL table reads outside of its SELECT lists: they decide which rows there are."""
    tree = parsed(table.file, table.sql)
    aliases = {node.alias_or_name.lower(): name_of(node) for node in tree.find_all(exp.Table)}
    found: set[Column] = set()
    for node in tree.find_all(exp.Column):
        if not _is_selected(node):
            first, *others = _whole_path(node)
            if first.lower() in aliases and others:
                found.add((aliases[first.lower()], ".".join(others)))
            else:
                names = {name: {each.partition(".")[0] for each in known.get(name, ())} for name in table.sources}
                of = [name for name in table.sources if first in names[name]]
                found |= {(name, ".".join((first, *others))) for name in of or table.sources}
    return found


def _is_selected(column: exp.Column) -> bool:
    """Whether a column is in a SELECT list, and not in a condition, a join or a GROUP BY."""
    node: exp.Expr = column
    while node.parent is not None and not isinstance(node.parent, exp.Select):
        node = node.parent
    return node.arg_key == "expressions"


def _whole_path(column: exp.Column) -> list[str]:
    """The names in `o.item.price`, whichever of them sqlglot takes for a table."""
    return [*(part.name for part in column.parts[:-1]), *_path(column).split(".")]
