"""Run the SELECT of a declared table over any rows in place of its sources, and find the keys that changes touch.

The queries for touched keys are made in `touching`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise

import sqlglot
from py4j.java_gateway import JavaObject
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType
from sqlglot import TokenType, exp

from pulsar_lakehouse.contracts.checks import Mode, of_mode
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.header import FULL
from pulsar_lakehouse.gold.sql.parsing import DIALECT, line_of, literal, name_of, parsed, tables_in
from pulsar_lakehouse.gold.sql.touching import (
    AGGREGATES,
    CHANGED,
    NotByKeyError,
    as_views,
    calls,
    inlined,
    joined,
    rows_of,
    touching,
    view,
    why_not,
)
from pulsar_lakehouse.spark.declared_sql import reason_of
from pulsar_lakehouse.spark.files import java_class
from pulsar_lakehouse.spark.functions import DECLARED, fingerprints, with_calls

CATALYST = "org.apache.spark.sql.catalyst"
ROWS = "rows"
"""The name, in a definition, of the SELECT without its columns."""
SKIPPED_BY = ("bigint", "int", "date", "timestamp", "string")
"""Types for which Delta can skip files by their lowest and highest values."""

WINDOW_FUNCTIONS = ("row_number", "rank", "dense_rank", "lag", "lead")
"""What a SELECT may compute by OVER beside aggregates."""


NESTED = (StructType, ArrayType, MapType)


class FullOnlyError(ConfigurationError):
    """A table is declared as incremental, but can only be refreshed in full."""


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

        Those are left out that depend on rows around, such as session windows, ranks and aggregates.
        """
        return tuple(key for key in self.table.keys if not self.why_not.get(key))

    @cached_property
    def inlined(self) -> exp.Query:
        """The SELECT with subqueries instead of WITH. Raises FullOnlyError."""
        with self._full_only():
            return inlined(self.tree)

    @cached_property
    def why_not(self) -> Mapping[str, str]:
        """By column: why it can't be in `grouping`; empty if it can. Raises FullOnlyError."""
        with self._full_only():
            return why_not(self.inlined)

    @property
    def is_of_tables(self) -> bool:
        """Whether it is a single SELECT, of tables only."""
        return isinstance(self.tree, exp.Select) and not self.tree.find(exp.Subquery, exp.With)

    @property
    def is_plain(self) -> bool:
        """Whether each row of the result is made of one joined row, or of one group of them."""
        return self.is_of_tables and not (self.tree.args.get("distinct") or self.tree.find(exp.Window))

    @contextmanager
    def _full_only(self) -> Iterator[None]:
        try:
            yield
        except NotByKeyError as error:
            raise self.full_only(error.node, error.what) from None

    def full_only(self, node: exp.Expr, what: str) -> FullOnlyError:
        at = f"{self.table.at}:{line_of(node)}"
        return FullOnlyError(f"{at}: {what} can't be refreshed by keys: declare `refresh: {FULL}`, or avoid it")

    @property
    def bounds(self) -> dict[str, tuple[exp.Expr, exp.Expr]]:
        """By column of the first table: expressions for its lowest and highest value in a group, if keys give them."""
        bounds = dict[str, tuple[exp.Expr, exp.Expr]]()
        if not self.is_of_tables or any(join.side in ("RIGHT", "FULL") for join in self.tree.args.get("joins") or []):
            return bounds
        for key in self.grouping:
            node = self.projections[key].unalias()
            column, low, high = node, node, node
            if isinstance(node, exp.Dot) and isinstance(node.this, exp.Anonymous) and calls(node.this, "window"):
                column = node.this.expressions[0]
                low, high = (exp.Dot.build([node.this.copy(), exp.to_identifier(end)]) for end in ("start", "end"))
            first = joined(self.tree)[0].alias_or_name
            if isinstance(column, exp.Column) and not column.db and column.table in ("", first):
                bounds[column.name] = (low, high)
        return bounds

    def definition(self, columns: Sequence[str]) -> dict[str, str]:
        """What the rows of the table, which has these columns, are made from, with the values of parameters."""
        made = self.tree.selects
        if len(made) != len(columns) or self.tree.is_star:  # then columns have the names that the SELECT gives, or `*`
            made = [self.projections.get(name, exp.Star()) for name in columns]
        rest = self.tree.copy()
        if isinstance(rest, exp.Select):
            rest.set("expressions", [exp.Star()])
        quarantining = of_mode(self.table.checks, Mode.QUARANTINE)
        return {
            "keys": ", ".join(self.table.keys),
            **{
                f"column {name}": node.unalias().sql(DIALECT, comments=False)
                for name, node in zip(columns, made, strict=True)
            },
            ROWS: rest.sql(DIALECT, comments=False),
            **{f"check {name}": check.sql for name, check in quarantining.items()},
            **fingerprints([self.tree.sql(DIALECT, comments=False), *(check.sql for check in quarantining.values())]),
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
        yield node.args["db"].meta["start"], node.this.meta["end"] + 1, f"{view(name_of(node))}{alias}"
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
    ends = [
        exp.alias_(end, f"{at}{name}")
        for name, bounds in statement.bounds.items()
        for at, end in zip(("_low_", "_high_"), bounds, strict=True)
    ]
    groups = (
        _run(spark, statement, sql, {**either, CHANGED: changed[name]})
        for name, sql in touching(statement.inlined, statement.grouping, ends)
        if name in changed
    )
    return reduce(DataFrame.union, groups).distinct()


def narrow(
    statement: Statement, sources: Mapping[str, DataFrame], groups: DataFrame
) -> tuple[int, dict[str, DataFrame]]:
    """The number of groups, and the sources with a filter by which Delta skips files without rows of these groups."""
    names = [name_of(node) for node in tables_in(statement.tree)]
    first = name_of(joined(statement.tree)[0]) if statement.bounds else names[0]
    rows, types = sources[first], dict(groups.dtypes)
    known = rows.dtypes if names.count(first) == 1 else []  # a second read needs all rows
    columns = [name for name, kind in known if kind in SKIPPED_BY and types.get(f"_low_{name}") == kind]
    # As text, because Python's types can't hold all of Spark's values.
    ends = [end.cast("string") for name in columns for end in (F.min(f"_low_{name}"), F.max(f"_high_{name}"))]
    [[count, *texts]] = groups.agg(F.count("*"), *ends).collect()
    for name, low, high in zip(columns, texts[::2], texts[1::2], strict=True):
        kind = types[f"_low_{name}"]
        is_near = F.col(name).between(*(F.lit(end).cast(kind) for end in (low, high)))
        rows = rows.where(F.col(name).isNull() | is_near)
    return count, {**sources, first: rows}


def joined_rows(
    spark: SparkSession,
    statement: Statement,
    sources: Mapping[str, DataFrame],
    values: Sequence[exp.Expr],
    select: exp.Query | None = None,
) -> DataFrame:
    """Values of the joined rows of the SELECT, or one in it, before it filters and groups them."""
    query = as_views(rows_of(select or statement.tree, values))
    return _run(spark, statement, query.sql(DIALECT), sources)


def refuse_full_only(statement: Statement, sources: Mapping[str, DataFrame], rows: DataFrame) -> None:
    """Raises FullOnlyError, with file and line, if the keys that a change touches can't be determined.

    `rows` are the result of the SELECT over any `sources`.
    """
    _refuse_functions(statement, rows)
    tree = statement.inlined
    if any(each.is_star for each in tree.selects):
        raise statement.full_only(tree, "SELECT *, which does not name its columns,")
    if not statement.grouping:
        key = statement.table.keys[0]
        raise statement.full_only(statement.projections[key], f"the key {key}, {statement.why_not[key]},")
    for select in tree.find_all(exp.Select):
        _refuse_ambiguous_aliases(statement, sources, select)


def _refuse_functions(statement: Statement, rows: DataFrame) -> None:
    for call in statement.tree.find_all(exp.Func):
        name = call.sql(DIALECT).partition("(")[0].lower()
        if function := DECLARED.get(name):
            if not function.is_deterministic:
                raise statement.full_only(call, f"{name}(), which is declared with deterministic=False,")
            continue
        if name in AGGREGATES or (name in WINDOW_FUNCTIONS and call.find_ancestor(exp.Window)):
            continue
        if isinstance(call, exp.AggFunc) or _is_aggregate(rows.sparkSession, name):
            raise statement.full_only(call, f"{name}(), which is not one of {', '.join(AGGREGATES)},")
    if _is_of_the_moment(rows):
        raise statement.full_only(statement.tree, "the current time, or another value that differs each time,")


def _refuse_ambiguous_aliases(statement: Statement, sources: Mapping[str, DataFrame], select: exp.Select) -> None:
    """As `user.name` may be of the table `user`, or a field of the column `user` of another table."""
    tables = joined(select) if select.args.get("joins") else []
    columns = (column for table in tables for column in sources[name_of(table)].schema)
    nested = {column.name.lower() for column in columns if isinstance(column.dataType, NESTED)}
    for table in tables:
        if table.alias_or_name.lower() in nested:
            raise statement.full_only(table, f"a join of {table.alias_or_name}, which is also the name of a column,")


def refuse_what_is_read_otherwise(
    spark: SparkSession, statement: Statement, sources: Mapping[str, DataFrame], rows: DataFrame
) -> None:
    """Raises ConfigurationError, with file and line, if sqlglot and Spark read the SELECT differently.

    `rows` are the result of the file's text. The queries for touched keys are generated from the parsed SELECT, so both
    must have the same plan.
    """
    try:
        again = _run(spark, statement, as_views(statement.tree).sql(DIALECT, comments=False), sources)
        is_same = _simplified(rows).sameResult(_simplified(again))
    except ConfigurationError:
        is_same = False
    if not is_same:
        line, word = _first_difference(statement.table.sql, statement.tree.sql(DIALECT))
        raise FullOnlyError(
            f"{statement.table.at}:{line}: from `{word}` on, sqlglot reads this differently from Spark, so it can't be "
            f"refreshed by keys: declare `refresh: {FULL}`, or write it in another way"
        )


def refuse_sums_of_doubles(spark: SparkSession, statement: Statement, sources: Mapping[str, DataFrame]) -> None:
    """Raises FullOnlyError, with file and line, for such sums and averages: rounding depends on the row order."""
    for select in statement.inlined.find_all(exp.Select):
        sums = [each for each in select.find_all(exp.Sum, exp.Avg) if each.find_ancestor(exp.Select) is select]
        added = [node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this for node in sums]
        values = [exp.alias_(value.copy(), f"value_{index}") for index, value in enumerate(added)]
        if not sums:
            continue
        for column, total in zip(joined_rows(spark, statement, sources, values, select).schema, sums, strict=True):
            if (kind := column.dataType.simpleString()) in ("double", "float"):
                what = f"a sum of {kind}s, which depends on the order of rows (use DECIMAL),"
                raise statement.full_only(total, what)


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
        plan = java_class(rows.sparkSession, f"{CATALYST}.{rule}").apply(plan)
    return plan


def _simplified(rows: DataFrame) -> JavaObject:
    """The plan, simplified so that equal meanings compare as equal. Names of WITH get the same numbers."""
    return _plan(rows, "optimizer.ConstantFolding", "optimizer.BooleanSimplification", "normalizer.NormalizeCTEIds")


def _is_of_the_moment(rows: DataFrame) -> bool:
    plan = _plan(rows)
    return not plan.deterministic() or not plan.fastEquals(_plan(rows, "optimizer.ComputeCurrentTime"))


def _run(spark: SparkSession, statement: Statement, sql: str, rows: Mapping[str, DataFrame]) -> DataFrame:
    """Runs SQL over temporary views. Raises ConfigurationError, with file and line, if Spark can't resolve it."""
    for name, frame in rows.items():
        frame.createOrReplaceTempView(view(name))
    try:
        return spark.sql(with_calls(sql))
    except (AnalysisException, ParseException) as error:
        raise ConfigurationError(located(statement, error)) from None
    finally:
        for name in rows:
            spark.catalog.dropTempView(view(name))


def located(statement: Statement, error: PySparkException) -> str:
    """Spark's reason for rejecting the SELECT, in one line, with file and line number."""
    line = re.search(r"line (\d+)", str(error))
    return f"{statement.table.at}:{line[1] if line else 1}: {reason_of(error)}"
