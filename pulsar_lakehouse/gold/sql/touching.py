"""Queries for the keys that changed rows of a source touch, made from the parsed SELECT of a declared table.

A query is the SELECT with the changed rows in place of one table that it reads, and without what only removes, groups
or orders rows. docs/decisions/015-sql-tables.md says why the keys that it returns are all that can be touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlglot import exp

from pulsar_lakehouse.gold.sql.parsing import DIALECT, name_of, tables_in
from pulsar_lakehouse.spark.functions import DECLARED

Query = TypeVar("Query", bound=exp.Query)

CHANGED = "_changed"
AGGREGATES = ("count", "count_if", "sum", "avg", "min", "max", "bool_and", "every", "bool_or", "some")
"""Aggregates that do not depend on the order of rows."""

_KEPT = ("expressions", "from_", "joins", "laterals")
_DROPPED = ("hint", "where", "group", "having", "distinct", "order", "sort", "cluster", "distribute")
_GROUPS = {exp.Rollup: "ROLLUP", exp.Cube: "CUBE", exp.GroupingSets: "GROUPING SETS"}
_SIDES = {"": (), "LEFT": (1,), "RIGHT": (0,), "FULL": (0, 1)}
"""By side of a join of two tables: which of them a row of the join may lack."""
NOT_IN_PARTITION_BY = "that PARTITION BY does not have"


class NotByKeyError(Exception):
    """A part of a query because of which the keys that a change touches can't be determined."""

    def __init__(self, node: exp.Expr, what: str) -> None:
        super().__init__(what)
        self.node, self.what = node, what


@dataclass(frozen=True)
class _Columns:
    """By column of a query: why the rows of a value do not depend on source rows of this value alone; empty if they do.

    `others` is the reason for columns that are not named, as they come by `*`.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    others: str = ""

    @classmethod
    def of(cls, reasons: "Reasons") -> "_Columns":
        by_name = dict[str, str]()
        for name, why in reasons:
            by_name[name.lower()] = by_name.get(name.lower()) or why
        return cls(by_name, by_name.pop("*", ""))

    def why_not(self, node: exp.Expr, qualifier: str = "") -> str:
        """The first reason of the columns in an expression."""
        for column in _columns_in(node):
            parts = [part.name.lower() for part in column.parts]
            name = parts[1] if parts[0] == qualifier and len(parts) > 1 else parts[0]
            if name not in self.reasons and self.others:
                return self.others
            if reason := next((self.reasons[part] for part in parts if self.reasons.get(part)), ""):
                return reason
        return ""


def inlined(tree: exp.Query) -> exp.Query:
    """The query with a subquery in place of each name that WITH defines."""
    tree = tree.copy()
    given = [each for each in tree.find_all(exp.Query) if each.args.get("with_")]
    for query in reversed(given):  # the innermost first
        defined = query.args["with_"].pop()
        if defined.args.get("recursive"):
            raise NotByKeyError(defined, "WITH RECURSIVE")
        for index, each in enumerate(defined.expressions):
            names = [
                table
                for scope in (query, *defined.expressions[index + 1 :])
                for table in scope.find_all(exp.Table)
                if not table.args.get("db") and table.name == each.alias
            ]
            if not names:
                raise NotByKeyError(each, f"{each.alias}, which WITH defines but nothing reads,")
            for table in names:
                if each.args["alias"].columns or _given(table) - {"this", "alias"}:
                    raise NotByKeyError(table, f"{each.alias} with more than an alias")
                alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(each.alias))
                table.replace(exp.Subquery(this=each.this.copy(), alias=alias.copy()))
    return tree


def why_not(tree: exp.Query) -> dict[str, str]:
    """By column of a query: why it can't tell the rows to recompute together; empty if it can.

    `tree` is that of `inlined`. Raises NotByKeyError if no column of such a query can.
    """
    tree = tree.copy()
    _refuse_subqueries(tree)
    return dict(_stripped(tree, _Place())[1])


def touching(tree: exp.Query, keys: Sequence[str], ends: Sequence[exp.Expr] = ()) -> Iterator[tuple[str, str]]:
    """The tables that a query reads, each with SQL for the keys that its changed rows touch: they are `CHANGED`.

    The other tables are read by the names that `view` gives, and must have their rows of before and after. `ends` are
    more expressions over the joined rows of a query without subqueries.
    """
    positions = [[each.alias_or_name for each in tree.selects].index(key) for key in keys]
    texts = dict[tuple[str, str], None]()
    for index, node in enumerate(tables_in(tree)):
        for without in ("", *_nullable(node)):
            query = tree.copy()
            place = _Place(table=list(tables_in(query))[index], without=without)
            query = _of_keys(_stripped(query, place)[0], positions, ends)
            for table in list(tables_in(query)):
                _replace(table, CHANGED if table is place.table else view(name_of(table)))
            rows = exp.select("*").from_(query.subquery("_touched", copy=False), copy=False).distinct(copy=False)
            texts[name_of(node), rows.sql(DIALECT, comments=False)] = None
    yield from texts


def view(name: str) -> str:
    return name if name == CHANGED else f"_{name.replace('.', '_')}"


def as_views(tree: Query) -> Query:
    """The query over views in place of the tables that it reads."""
    tree = tree.copy()
    for node in list(tables_in(tree)):
        _replace(node, view(name_of(node)))
    return tree


def joined(select: exp.Expr) -> list[exp.Table]:
    """The tables of a SELECT without subqueries, in the order of its FROM and joins."""
    return [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]


def rows_of(select: exp.Query, expressions: Sequence[exp.Expr]) -> exp.Select:
    """A query for these expressions over the joined rows of a SELECT, before it filters and groups them."""
    query = select.copy()
    assert isinstance(query, exp.Select)
    for name in set(query.args) - {"from_", "joins", "laterals"}:
        query.set(name, None)
    query.comments = []
    return query.select(*expressions, copy=False)


def calls(node: exp.Expr, function: str) -> bool:
    return any(each.name.lower() == function for each in node.find_all(exp.Anonymous))


def is_aggregate(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        function = DECLARED.get(node.name.lower())
        return node.name.lower() in AGGREGATES or (function is not None and function.is_aggregate)
    return isinstance(node, exp.AggFunc)


@dataclass(frozen=True)
class _Place:
    """The table in whose place changed rows are read, and the alias of one whose columns are NULL, as without a match.

    Both are optional.
    """

    table: exp.Table | None = None
    without: str = ""


Reasons = list[tuple[str, str]]
"""The columns of a query in their order, with why they can't be keys. The name `*` stands for all others."""


def _stripped(query: exp.Expr, place: _Place) -> tuple[exp.Query, Reasons]:
    """The query for the values of its columns that changed rows make, and why some of the columns can't be keys.

    Those are NULL in it. A SELECT that does not read the changed rows returns no rows, and only decides on types.
    """
    if isinstance(query, exp.Subquery) and not _given(query) - {"this", "alias"}:
        return _stripped(query.this, place)
    if isinstance(query, exp.SetOperation):
        return _stripped_union(query, place)
    if not isinstance(query, exp.Select) or not query.args.get("from_"):
        raise NotByKeyError(query, "something other than a SELECT from a table or a subquery")
    return query, _strip_select(query, place)


def _stripped_union(query: exp.SetOperation, place: _Place) -> tuple[exp.Query, Reasons]:
    """INTERSECT and EXCEPT as well: what they do to a row depends on rows that are equal to it."""
    if extra := _given(query) - {"this", "expression", "distinct", "order"}:
        raise NotByKeyError(query, f"{_clauses(extra)} of a UNION")
    for branch in (query.this, query.expression):
        for each in branch.unnest().selects:
            is_one = isinstance(each.unnest(), exp.Cast) or not isinstance(each.unnest(), exp.Func | exp.Aliases)
            if each.is_star or not is_one:
                raise NotByKeyError(each, "*, or a function without a name, in a UNION (use AS)")
    (left, first), (right, second) = (_stripped(branch, place) for branch in (query.this, query.expression))
    reasons = [(name, why or other) for (name, why), (_, other) in zip(first, second, strict=True)]
    return exp.Union(this=left, expression=right, distinct=False), reasons


def _strip_select(select: exp.Select, place: _Place) -> Reasons:
    is_read = place.table is None or any(node is place.table for node in tables_in(select))
    source, inner = select.args["from_"].this, _Columns()
    _refuse_clauses(select)
    if isinstance(source, exp.Subquery):
        query, reasons = _stripped(source.this, place)
        source.set("this", query)
        inner = _Columns.of(reasons)
    for lateral in select.args.get("laterals") or []:
        if why := inner.why_not(lateral, source.alias_or_name.lower()):
            raise NotByKeyError(lateral, f"LATERAL VIEW with a column {why}")
    reasons = _null_what_is_no_key(select, inner)
    if is_read and place.without:
        _null_columns(select, place.without)
    for clause in _DROPPED:
        select.set(clause, None)
    if not is_read:
        select.where("FALSE", copy=False)
    for index, table in enumerate(joined(select)):
        if table is place.table:
            _join_changes(select, index)
    return reasons


def _null_columns(select: exp.Select, alias: str) -> None:
    """Put NULL in place of the columns of a joined table."""
    for column in [each for node in select.selects for each in _columns_in(node)]:
        if alias in _aliases(select) and _owner(column) == alias:  # a NULL of the same type
            null = exp.Case(ifs=[exp.If(this=exp.true(), true=exp.null())], default=column.copy())
            column.replace(exp.alias_(null, column.name) if column.parent is select else null)


def _refuse_clauses(select: exp.Select) -> None:
    if extra := _given(select) - {*_KEPT, *_DROPPED}:
        raise NotByKeyError(select, _clauses(extra))
    for kind, name in _GROUPS.items():
        if select.args.get("group") and (node := select.args["group"].find(kind)):
            raise NotByKeyError(node, name)
    joins = select.args.get("joins") or []
    for source in joined(select):
        if not isinstance(source, exp.Table | exp.Subquery) or _given(source) - {"this", "db", "alias"}:
            raise NotByKeyError(source, "FROM with something other than a table or a subquery")
        if isinstance(source, exp.Subquery) and joins:
            raise NotByKeyError(source, "a join of a subquery")
        if source.args.get("alias") and source.args["alias"].columns:
            raise NotByKeyError(source, f"{source.alias_or_name} with other names for its columns")
    for join in joins:
        _refuse_join(join, is_of_two=len(joins) == 1)
    if joins and select.args.get("laterals"):
        raise NotByKeyError(select, "LATERAL VIEW together with a join")


def _refuse_join(join: exp.Join, *, is_of_two: bool) -> None:
    if not join.args.get("on") and not join.args.get("using"):
        raise NotByKeyError(join, "a join without ON")
    is_plain = join.side in _SIDES and join.kind in ("", "INNER", "OUTER") and not join.method
    if not is_plain or (join.kind == "OUTER" and not join.side):
        raise NotByKeyError(join, "a join other than INNER, LEFT, RIGHT and FULL")
    if join.side in ("RIGHT", "FULL") and not is_of_two:
        raise NotByKeyError(join, f"a {join.side} join of more than two tables")


def _null_what_is_no_key(select: exp.Select, inner: _Columns) -> Reasons:
    """Put NULL in place of columns that can't be keys. Returns all columns; `inner` are those of a subquery in FROM."""
    shared = _shared_partition(select)
    qualifier = select.args["from_"].this.alias_or_name.lower()
    found: Reasons = []
    for node in list(select.selects):
        if node.is_star:
            found += _star(select, inner, shared)
            continue
        value, named = node.unalias(), _Columns.of([each for each in found if each[0] != "*" and each[1]])
        why = (
            inner.why_not(value, qualifier)
            or named.why_not(value)
            or _why_not_alone(value, select)
            or (shared is not None and not _is_made_of(value, shared) and NOT_IN_PARTITION_BY)
            or _why_not_joined(value, select)
        ) or ""
        found.append((node.alias_or_name, why))
        if why:
            if not isinstance(node, exp.Alias | exp.Column):
                raise NotByKeyError(node, "a column without a name (use AS)")
            node.replace(exp.alias_(exp.null(), node.alias_or_name, quoted=True))
    return found


def _star(select: exp.Select, inner: _Columns, shared: list[exp.Expr] | None) -> Reasons:
    if shared is not None:
        qualifier = select.args["from_"].this.alias_or_name.lower()
        plain = [each for each in shared if isinstance(each, exp.Column) and not inner.why_not(each, qualifier)]
        return [*((each.name, "") for each in plain if _owner(each) in ("", qualifier)), ("*", NOT_IN_PARTITION_BY)]
    if len(_firm(select)) < len(joined(select)):
        return [("*", "from a join by *")]
    return [*inner.reasons.items(), ("*", inner.others)]


def _why_not_alone(value: exp.Expr, select: exp.Select) -> str:
    if value.find(exp.Window):
        return "computed by a window function"
    if any(is_aggregate(node) for node in value.walk()):
        return "computed from an aggregate"
    if calls(value, "session_window"):
        return "of a session window"
    of_group = [name for name in ("window", "session_window") if calls(select.args.get("group") or exp.Group(), name)]
    if any(column.parts[0].name.lower() in of_group for column in _columns_in(value)):
        return "of a window that GROUP BY names (write window(...).start)"
    return ""


def _why_not_joined(value: exp.Expr, select: exp.Select) -> str:
    firm, aliases = _firm(select), _aliases(select)
    owners = {_owner(column) for column in _columns_in(value)}
    if len(firm) == len(aliases) or owners <= firm:
        return ""
    if not owners <= set(aliases):
        return f"with columns of an unknown table (write {aliases[0]}.x)"
    return "" if len(aliases) == 2 else "with columns of a table that a LEFT JOIN can leave out"


def _firm(select: exp.Select) -> set[str]:
    """The joined tables, by alias, of which changes of the others can't take rows away before all are joined."""
    joins, aliases = select.args.get("joins") or [], _aliases(select)
    if not any(join.side for join in joins):
        return set(aliases)
    firm = set() if joins[0].side in ("RIGHT", "FULL") else {aliases[0]}
    for join, alias in zip(joins, aliases[1:], strict=True):
        condition = join.args.get("on")
        if not join.side and condition and {_owner(each) for each in _columns_in(condition)} <= {*firm, alias}:
            firm.add(alias)
    return firm


def _join_changes(select: exp.Select, index: int) -> None:
    """Keep all rows that are joined to the changed ones, which are in place of the table at this place."""
    firm, aliases = _firm(select), _aliases(select)
    for at, join in enumerate(select.args.get("joins") or [], 1):
        if at == index:
            join.set("side", "RIGHT" if join.side in ("RIGHT", "FULL") else None)
            join.set("kind", None)
        elif at > index and aliases[at] not in firm:
            join.set("side", "LEFT")
            join.set("kind", None)


def _nullable(node: exp.Table) -> list[str]:
    """The aliases of the tables, joined to this one in a pair, of which a row of the join may have none."""
    select = node.find_ancestor(exp.Select)
    assert select is not None
    joins, aliases = select.args.get("joins") or [], _aliases(select)
    return [aliases[at] for at in _SIDES[joins[0].side]] if len(joins) == 1 else []


def _of_keys(query: exp.Query, positions: Sequence[int], ends: Sequence[exp.Expr]) -> exp.Query:
    if isinstance(query, exp.SetOperation):
        for side in ("this", "expression"):
            query.set(side, _of_keys(query.args[side], positions, ends))
    else:
        query.set("expressions", [*(query.selects[at] for at in positions), *(end.copy() for end in ends)])
    return query


def _refuse_subqueries(tree: exp.Query) -> None:
    """Raises NotByKeyError for a subquery anywhere but in FROM."""
    for node in tree.find_all(exp.Select):
        above = node.parent
        while isinstance(above, exp.Subquery | exp.SetOperation):
            above = above.parent
        if above is not None and not isinstance(above, exp.From):
            is_joined = isinstance(above, exp.Join)
            raise NotByKeyError(node, "a join of a subquery" if is_joined else "a subquery outside of FROM")


def _is_made_of(value: exp.Expr, parts: Sequence[exp.Expr]) -> bool:
    found = value.walk(prune=lambda node: node in parts)
    return all(node in parts or not isinstance(node, exp.Column) for node in found)


def _shared_partition(select: exp.Select) -> list[exp.Expr] | None:
    """What all window functions of a SELECT have in PARTITION BY. None without window functions."""
    windows = [each.args.get("partition_by") or [] for node in select.selects for each in node.find_all(exp.Window)]
    return [part for part in windows[0] if all(part in each for each in windows)] if windows else None


def _columns_in(node: exp.Expr) -> list[exp.Column]:
    return [column for column in node.find_all(exp.Column) if not column.is_star]


def _owner(column: exp.Column) -> str:
    """What may be the alias of the column's table."""
    return column.parts[0].name.lower() if len(column.parts) > 1 else ""


def _aliases(select: exp.Select) -> list[str]:
    return [table.alias_or_name.lower() for table in joined(select)]


def _given(node: exp.Expr) -> set[str]:
    return {name for name, value in node.args.items() if value}


def _clauses(names: set[str]) -> str:
    return ", ".join(sorted(names)).replace("_", " ").strip().upper()


def _replace(node: exp.Table, name: str) -> None:
    node.replace(exp.alias_(exp.to_table(name), node.alias_or_name, table=True))
