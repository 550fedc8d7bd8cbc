"""Run the SELECT of a declared table over any rows in place of its sources, and find the keys that changes touch.

The touched keys are those that the SELECT returns for the changed rows, without its WHERE, and with an inner join to
the changed rows. docs/decisions/015-sql-tables.md says why this is exact, and for which SELECTs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import sqlglot
from py4j.java_gateway import JavaObject
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot import TokenType, exp

from pulsar_lakehouse.contracts.checks import Mode, of_mode
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.header import FULL
from pulsar_lakehouse.gold.sql.parsing import DIALECT, line_of, literal, name_of, parsed, tables_in
from pulsar_lakehouse.spark.declared_sql import reason_of
from pulsar_lakehouse.spark.files import java_class

CATALYST = "org.apache.spark.sql.catalyst"
CHANGED = "_changed"
ROWS = "rows"
"""The name, in a definition, of the SELECT without its columns."""
SKIPPED_BY = ("bigint", "int", "date", "timestamp", "string")
"""Types for which Delta can skip files by their lowest and highest values."""

_NOT_BY_KEY = {
    exp.With: "WITH",
    exp.Subquery: "a subquery",
    exp.Window: "a window function",
    exp.Limit: "LIMIT",
    exp.Offset: "OFFSET",
    exp.Qualify: "QUALIFY",
    exp.Rollup: "ROLLUP",
    exp.Cube: "CUBE",
    exp.GroupingSets: "GROUPING SETS",
}
"""What an incremental SELECT must not have: the rows of a key may only depend on the source rows of that key."""

AGGREGATES = ("count", "count_if", "sum", "avg", "min", "max", "bool_and", "every", "bool_or", "some")
"""Aggregates that do not depend on the order of rows."""


@dataclass(frozen=True)
class Statement:
    """The parsed SELECT of a table."""

    table: SqlTable
    tree: exp.Query

    @property
    def projections(self) -> dict[str, exp.Expr]:
        return {each.alias_or_name: each for each in self.tree.selects}

    @property
    def grouping(self) -> tuple[str, ...]:
        """The keys that identify the rows to recompute together.

        Session windows are left out, because the end of a session depends on the rows around it.
        """
        return tuple(key for key in self.table.keys if not calls(self.projections[key], "session_window"))

    @property
    def bounds(self) -> dict[str, tuple[exp.Expr, exp.Expr]]:
        """By column of the first table: expressions for its lowest and highest value in a group, if keys give them."""
        bounds = {}
        for key in self.grouping:
            node = self.projections[key].unalias()
            column, low, high = node, node, node
            if isinstance(node, exp.Dot) and isinstance(node.this, exp.Anonymous) and calls(node.this, "window"):
                column = node.this.expressions[0]
                low, high = (exp.Dot.build([node.this.copy(), exp.to_identifier(end)]) for end in ("start", "end"))
            if isinstance(column, exp.Column) and column.table in ("", _joined(self.tree)[0].alias_or_name):
                bounds[column.name] = (low, high)
        return bounds

    @property
    def definition(self) -> dict[str, str]:
        """What the rows of the table are made from, by name, with the values of parameters."""
        rest = self.tree.copy()
        if isinstance(rest, exp.Select):
            rest.set("expressions", [exp.Star()])
        quarantining = of_mode(self.table.checks, Mode.QUARANTINE)
        return {
            "keys": ", ".join(self.table.keys),
            **{
                f"column {name}": node.unalias().sql(DIALECT, comments=False) for name, node in self.projections.items()
            },
            ROWS: rest.sql(DIALECT, comments=False),
            **{f"check {name}": check.sql for name, check in quarantining.items()},
        }

    def wrong(self, node: exp.Expr, reason: str) -> ConfigurationError:
        return ConfigurationError(f"{self.table.at}:{line_of(node)}: {reason}")


def parse(table: SqlTable) -> Statement:
    """The table's SELECT, with the values of parameters in place of their markers."""

    def valued(node: exp.Expr) -> exp.Expr:
        return literal(table.parameters[node.name]) or node if isinstance(node, exp.Placeholder) else node

    tree = parsed(table.file, table.sql).transform(valued, copy=False)
    assert isinstance(tree, exp.Query)
    return Statement(table, tree)


def select(spark: SparkSession, statement: Statement, sources: Mapping[str, DataFrame]) -> DataFrame:
    """The rows that the SELECT returns over these sources.

    Raises ConfigurationError, with file and line, if Spark can't resolve it.
    """
    sql = statement.table.sql  # the unchanged text, so that Spark's line numbers are those of the file
    for start, end, instead in sorted(_replaced(statement), reverse=True):
        sql = f"{sql[:start]}{instead}{sql[end:]}"
    return _run(spark, statement, sql, sources)


def _replaced(statement: Statement) -> Iterator[tuple[int, int, str]]:
    """The parts of the text that stand for something else, from where to where: tables, and markers of parameters.

    The parser of Delta Lake 4.4 drops the values that Spark's `sql` takes for markers, so they are replaced here.
    """
    for node in tables_in(statement.tree):
        alias = "" if node.alias else f" AS {node.name}"
        yield node.args["db"].meta["start"], node.this.meta["end"] + 1, f"{_view(name_of(node))}{alias}"
    for colon, name in pairwise(sqlglot.tokenize(statement.table.sql, read=DIALECT)):
        if colon.token_type is TokenType.COLON and name.text in statement.table.parameters:
            # After a space, as a minus before a negative number would begin a comment.
            yield colon.start, name.end + 1, f" {statement.table.parameters[name.text]}"


def touched(
    spark: SparkSession, statement: Statement, current: Mapping[str, DataFrame], changed: Mapping[str, DataFrame]
) -> DataFrame:
    """The groups that changes touch: the values of `grouping`, and for each column of `bounds`, `_low_` and `_high_`.

    `changed` are the changed rows of sources, as they were before and after.
    """
    either = {name: rows.unionByName(changed[name]) if name in changed else rows for name, rows in current.items()}
    groups = (
        _run(spark, statement, _touched_by(statement, index), {**either, CHANGED: changed[name_of(node)]})
        for index, node in enumerate(_joined(statement.tree))
        if name_of(node) in changed
    )
    return reduce(DataFrame.union, groups).distinct()


def narrow(
    statement: Statement, sources: Mapping[str, DataFrame], groups: DataFrame
) -> tuple[int, dict[str, DataFrame]]:
    """The number of groups, and the sources with a filter by which Delta skips files without rows of these groups."""
    names = [name_of(node) for node in _joined(statement.tree)]
    rows, types = sources[names[0]], dict(groups.dtypes)
    known = rows.dtypes if names.count(names[0]) == 1 else []  # a second read needs all rows
    columns = [name for name, kind in known if kind in SKIPPED_BY and types.get(f"_low_{name}") == kind]
    # As text, because Python's types can't hold all of Spark's values.
    ends = [end.cast("string") for name in columns for end in (F.min(f"_low_{name}"), F.max(f"_high_{name}"))]
    [[count, *texts]] = groups.agg(F.count("*"), *ends).collect()
    for name, low, high in zip(columns, texts[::2], texts[1::2], strict=True):
        kind = types[f"_low_{name}"]
        is_near = F.col(name).between(*(F.lit(end).cast(kind) for end in (low, high)))
        rows = rows.where(F.col(name).isNull() | is_near)
    return count, {**sources, names[0]: rows}


def joined_rows(
    spark: SparkSession, statement: Statement, sources: Mapping[str, DataFrame], values: Sequence[exp.Expr]
) -> DataFrame:
    """Values of the joined rows of a plain SELECT, before it filters and groups them."""
    query = _rows(statement.tree, values)
    for node in _joined(query):
        _replace(node, _view(name_of(node)))
    return _run(spark, statement, query.sql(DIALECT), sources)


def refuse_full_only(statement: Statement, rows: DataFrame) -> None:
    """Raises ConfigurationError, with file and line, if the keys that a change touches can't be determined.

    `rows` are the result of the SELECT over any sources.
    """
    _refuse_shapes(statement)
    _refuse_functions(statement, rows)
    joins = statement.tree.args.get("joins") or []
    for join in joins:
        _refuse_join(statement, join)
    if any(each.is_star for each in statement.tree.selects):
        raise _full_only(statement, statement.tree, "SELECT *, which does not name its columns,")
    if joins and statement.tree.args.get("laterals"):
        raise _full_only(statement, statement.tree, "LATERAL VIEW together with a join")
    for key in statement.table.keys:
        _refuse_key(statement, key, first=_joined(statement.tree)[0].alias_or_name if joins else None)
    if not statement.grouping:
        raise _full_only(statement, statement.tree, "a table without a key besides a session window")


def _refuse_shapes(statement: Statement) -> None:
    tree = statement.tree
    if not isinstance(tree, exp.Select) or tree.args.get("distinct") or len(list(tree.find_all(exp.Select))) > 1:
        raise _full_only(statement, tree, "a UNION, DISTINCT or a subquery")
    for kind, name in _NOT_BY_KEY.items():
        if node := tree.find(kind):
            raise _full_only(statement, node, name)


def _refuse_functions(statement: Statement, rows: DataFrame) -> None:
    for call in statement.tree.find_all(exp.Func):
        name = call.sql(DIALECT).partition("(")[0].lower()
        if name not in AGGREGATES and (isinstance(call, exp.AggFunc) or _is_aggregate(rows.sparkSession, name)):
            raise _full_only(statement, call, f"{name}(), which is not one of {', '.join(AGGREGATES)},")
    if _is_of_the_moment(rows):
        raise _full_only(statement, statement.tree, "the current time, or another value that differs each time,")


def _refuse_join(statement: Statement, join: exp.Join) -> None:
    kinds = {join.side, join.kind, join.method}
    is_plain = kinds <= {"", "LEFT", "INNER", "OUTER"} and "OUTER" not in kinds - {join.kind}
    if not isinstance(join.this, exp.Table) or not is_plain:
        raise _full_only(statement, join, "a join other than INNER and LEFT of tables")
    if not join.args.get("on") and not join.args.get("using"):
        raise _full_only(statement, join, "a join without ON")


def _refuse_key(statement: Statement, key: str, *, first: str | None) -> None:
    """`first` is the first table of a join, whose columns alone can be keys."""
    node = statement.projections.get(key)
    if node is None:
        raise ConfigurationError(f"{statement.table.at}:1: keys: {key} is not a column of the SELECT")
    if node.find(exp.AggFunc):
        raise _full_only(statement, node, f"the key {key}, computed from an aggregate,")
    if first is not None and any(column.table != first for column in node.find_all(exp.Column)):
        raise _full_only(statement, node, f"the key {key}, with columns other than {first}'s (write {first}.x),")


def refuse_what_is_read_otherwise(
    spark: SparkSession, statement: Statement, sources: Mapping[str, DataFrame], rows: DataFrame
) -> None:
    """Raises ConfigurationError, with file and line, if sqlglot and Spark read the SELECT differently.

    `rows` are the result of the file's text. The queries for touched keys are generated from the parsed SELECT, so both
    must have the same plan.
    """
    tree = statement.tree.copy()
    for node in tables_in(tree):
        _replace(node, _view(name_of(node)))
    try:
        again = _run(spark, statement, tree.sql(DIALECT, comments=False), sources)
        is_same = _simplified(rows).sameResult(_simplified(again))
    except ConfigurationError:
        is_same = False
    if not is_same:
        line, word = _first_difference(statement.table.sql, statement.tree.sql(DIALECT))
        raise ConfigurationError(
            f"{statement.table.at}:{line}: from `{word}` on, sqlglot reads this differently from Spark, so it can't be "
            f"refreshed by keys: declare `refresh: {FULL}`, or write it in another way"
        )


def refuse_sums_of_doubles(spark: SparkSession, statement: Statement, sources: Mapping[str, DataFrame]) -> None:
    """Raises ConfigurationError, with file and line, for such sums and averages: rounding depends on the row order."""
    sums = list(statement.tree.find_all(exp.Sum, exp.Avg))
    added = [node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this for node in sums]
    if not sums:
        return
    values = [exp.alias_(value.copy(), f"value_{index}") for index, value in enumerate(added)]
    for column, total in zip(joined_rows(spark, statement, sources, values).schema, sums, strict=True):
        if (kind := column.dataType.simpleString()) in ("double", "float"):
            raise _full_only(statement, total, f"a sum of {kind}s, which depends on the order of rows (use DECIMAL),")


def _first_difference(given: str, read: str) -> tuple[int, str]:
    """The line and word where two SQL texts begin to differ, apart from comments, spaces and case."""
    tokens, others = (sqlglot.tokenize(sql, read=DIALECT) for sql in (given, read))
    for token, other in zip(tokens, others, strict=False):
        if (token.token_type, token.text.upper()) != (other.token_type, other.text.upper()):
            return token.line, token.text
    return tokens[-1].line, tokens[-1].text


def _is_aggregate(spark: SparkSession, name: str) -> bool:
    """Whether Spark has a built-in aggregate function of this name: sqlglot does not know all of them."""
    registry = java_class(spark, f"{CATALYST}.analysis.FunctionRegistry").builtin()
    function = registry.lookupFunction(java_class(spark, f"{CATALYST}.FunctionIdentifier")(name))
    return bool(function.isDefined() and function.get().getGroup() == "agg_funcs")


def _plan(rows: DataFrame, *rules: str) -> JavaObject:
    """The plan of a query, changed by these rules of Spark's optimizer."""
    plan = rows._jdf.queryExecution().analyzed()
    for rule in rules:
        plan = java_class(rows.sparkSession, f"{CATALYST}.optimizer.{rule}").apply(plan)
    return plan


def _simplified(rows: DataFrame) -> JavaObject:
    """The plan, with constants folded and conditions simplified, so that equal meanings compare as equal."""
    return _plan(rows, "ConstantFolding", "BooleanSimplification")


def _is_of_the_moment(rows: DataFrame) -> bool:
    plan = _plan(rows)
    return not plan.deterministic() or not plan.fastEquals(_plan(rows, "ComputeCurrentTime"))


def _touched_by(statement: Statement, index: int) -> str:
    """The query for the keys that changed rows of a table touch. `index` is the table's place in FROM and joins."""
    keys = [statement.projections[key].copy() for key in statement.grouping]
    ends = [
        exp.alias_(end.copy(), f"{at}{name}")
        for name, bounds in statement.bounds.items()
        for at, end in zip(("_low_", "_high_"), bounds, strict=True)
    ]
    query = _rows(statement.tree, [*keys, *ends])
    for at, node in enumerate(_joined(query)):
        if at == index and isinstance(node.parent, exp.Join):
            node.parent.set("side", None)
            node.parent.set("kind", None)
        _replace(node, CHANGED if at == index else _view(name_of(node)))
    return query.distinct().sql(DIALECT)


def _rows(tree: exp.Query, expressions: Sequence[exp.Expr]) -> exp.Select:
    """A query for these expressions over the joined rows, before they are filtered and grouped."""
    query = tree.copy()
    assert isinstance(query, exp.Select)
    for name in set(query.args) - {"from_", "joins", "laterals"}:
        query.set(name, None)
    query.comments = []
    return query.select(*expressions, copy=False)


def _run(spark: SparkSession, statement: Statement, sql: str, rows: Mapping[str, DataFrame]) -> DataFrame:
    """Runs SQL over temporary views. Raises ConfigurationError, with file and line, if Spark can't resolve it."""
    for name, frame in rows.items():
        frame.createOrReplaceTempView(_view(name))
    try:
        return spark.sql(sql)
    except (AnalysisException, ParseException) as error:
        raise ConfigurationError(located(statement, error)) from None
    finally:
        for name in rows:
            spark.catalog.dropTempView(_view(name))


def located(statement: Statement, error: PySparkException) -> str:
    """Spark's reason for rejecting the SELECT, in one line, with file and line number."""
    line = re.search(r"line (\d+)", str(error))
    return f"{statement.table.at}:{line[1] if line else 1}: {reason_of(error)}"


def _joined(tree: exp.Expr) -> list[exp.Table]:
    """The tables of a plain SELECT, in the order of its FROM and joins."""
    return [tree.args["from_"].this, *(join.this for join in tree.args.get("joins") or ())]


def _view(name: str) -> str:
    return name if name == CHANGED else f"_{name.replace('.', '_')}"


def _replace(node: exp.Table, view: str) -> None:
    node.replace(exp.alias_(exp.to_table(view), node.alias_or_name, table=True))


def calls(node: exp.Expr, function: str) -> bool:
    return any(each.name.lower() == function for each in node.find_all(exp.Anonymous))


def _full_only(statement: Statement, node: exp.Expr, what: str) -> ConfigurationError:
    return statement.wrong(node, f"{what} can't be refreshed by keys: declare `refresh: {FULL}`, or avoid it")
