"""Run the SELECT of a declared table although it fails on some rows: separate those, with the reasons, from the rest.

The SELECT is rewritten so that each expression is tried. docs/decisions/017-rows-that-fail.md says which SELECTs allow
this, and what happens to the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

from pulsar_lakehouse.gold.sql.parsing import DIALECT
from pulsar_lakehouse.gold.sql.statements import (
    Statement,
    joined_rows,
    refuse_full_only,
    refuse_what_is_read_otherwise,
    select,
)
from pulsar_lakehouse.gold.sql.touching import calls, is_aggregate
from pulsar_lakehouse.spark.declared_sql import told_with, try_eval, value_of
from pulsar_lakehouse.spark.functions import errors_in
from pulsar_lakehouse.spark.session_settings import session_settings

SHARING = "spark.sql.subexpressionElimination.enabled"


def is_of_data(error: PySparkException) -> bool:
    """Whether SQL failed on data (SQLSTATE class 22), or refused it by raise_error() (class P0)."""
    return (error.getSqlState() or "").startswith(("22", "P0"))


@contextmanager
def each_expression_alone(spark: SparkSession) -> Iterator[None]:
    """Stop Spark from computing shared subexpressions first, outside of `try_eval`, while the block runs."""
    with session_settings(spark, {SHARING: "false"}):
        yield


def tried(spark: SparkSession, statement: Statement, sources: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of the table as the struct `row`, with their `keys` as JSON. Failing rows have NULL and a `reason`.

    Run it within `each_expression_alone`. Raises ConfigurationError, with file and line, if failing rows can't be told
    from others.
    """
    rows, tree = select(spark, statement, sources), statement.tree
    if not statement.is_plain:
        raise statement.wrong(tree, "a row of the result is not made of one joined row, or one group")
    refuse_full_only(statement, sources, rows)
    refuse_what_is_read_otherwise(spark, statement, sources, rows)
    if calls(tree, "session_window"):
        raise statement.wrong(tree, "where a session ends depends on all rows around it")
    joined = joined_rows(spark, statement, sources, [exp.Star()])
    where = tree.args["where"].this if tree.args.get("where") else exp.true()
    if tree.args.get("group"):
        return _by_group(joined, statement, where)
    if any(is_aggregate(node) for node in tree.walk()):
        raise statement.wrong(tree, "all rows are one group")
    return _each_row(joined, statement, where)


def _each_row(joined: DataFrame, statement: Statement, where: exp.Expr) -> DataFrame:
    plain = _without_aliases(statement, joined)
    projections = {name: plain(node.unalias()) for name, node in statement.projections.items()}
    rows = joined.select(
        _tried({"holds": where}).alias("_where"),
        _tried(projections).alias("_row"),
        _keys(statement, projections).alias("keys"),
        _reason([("WHERE", where), *projections.items()]).alias("_reason"),
    )
    fails = F.col("_where").isNull() | F.col("_row").isNull()
    return (
        rows.where("_where IS NULL OR _where.holds")
        .withColumn("reason", F.when(fails, F.col("_reason")))
        .select(F.when(~fails, F.col("_row")).alias("row"), "keys", "reason")
    )


def _by_group(joined: DataFrame, statement: Statement, where: exp.Expr) -> DataFrame:
    plain = _without_aliases(statement, joined)
    of_rows = _OfRows([plain(node) for node in _groups(statement)])
    projections = {name: of_rows.taken(plain(node.unalias()), name) for name, node in statement.projections.items()}
    having = statement.tree.args.get("having")
    kept = of_rows.taken(plain(having.this), "HAVING") if having else exp.true()
    values = {f"v{index}": node for index, (_, node) in enumerate(of_rows.values)}
    rows = joined.select(
        _tried({"holds": where}).alias("_where"),
        _tried({f"g{index}": node for index, node in enumerate(of_rows.groups)}).alias("_groups"),
        _tried({"any": exp.true(), **values}).alias("_values"),
        _reason([("WHERE", where), *(("GROUP BY", node) for node in of_rows.groups), *of_rows.values]).alias("_reason"),
    )
    fails = F.col("_where").isNull() | F.col("_groups").isNull() | F.col("_values").isNull()
    groups = (
        rows.where("_where IS NULL OR _where.holds")
        .groupBy("_groups")
        .agg(
            F.max(F.when(fails, F.col("_reason"))).alias("_of_rows"),
            _reason_of_group({"HAVING": kept, **projections}, statement).alias("_of_group"),
            _tried({"holds": kept}).alias("_kept"),
            _tried(projections).alias("_row"),
            _keys(statement, projections).alias("keys"),
        )
    )
    own = F.when(F.col("_kept").isNull() | F.col("_row").isNull(), F.col("_of_group"))
    return (
        groups.withColumn("reason", F.coalesce("_of_rows", own))
        .where("reason IS NOT NULL OR _kept.holds")
        .select(F.when(F.col("reason").isNull(), F.col("_row")).alias("row"), "keys", "reason")
    )


@dataclass
class _OfRows:
    """What a SELECT with GROUP BY computes from each row: its groups, and the values to aggregate.

    Each value comes with the name of the column or clause that uses it. For example, the SELECT

        SELECT upper(city) AS city, sum(price / pieces) AS revenue FROM silver.sales GROUP BY upper(city)

    has the one group `upper(city)`, which is `_groups.g0` from now on. To take `sum(price / pieces)` notes the value
    `price / pieces`, as the first one, and gives `sum(_values.v0)`, or rather a `try_sum` of it that tells overflow. So
    `price / pieces` is tried on each row, before the rows are grouped.
    """

    groups: Sequence[exp.Expr]
    values: list[tuple[str, exp.Expr]] = field(default_factory=list)

    def taken(self, node: exp.Expr, name: str) -> exp.Expr:
        """The expression over `_groups` and `_values` instead of over rows."""

        def over(each: exp.Expr) -> exp.Expr:
            if each in self.groups:
                return exp.column(f"g{self.groups.index(each)}", table="_groups")
            if isinstance(each, exp.Filter):
                return self._aggregate(each.this, name, only=each.expression.this)
            return self._aggregate(each, name) if is_aggregate(each) else each

        return node.transform(over)

    def _aggregate(self, call: exp.Expr, name: str, only: exp.Expr | None = None) -> exp.Expr:
        call = call.copy()
        for given in [each for each in (call.this, *call.expressions) if isinstance(each, exp.Expr)]:
            for value in given.expressions if isinstance(given, exp.Distinct) else [given]:
                if only is not None:
                    value.replace(self._value(_if(only, exp.Literal.number(1) if value.is_star else value), name))
                elif not value.is_star:
                    value.replace(self._value(value, name))
        if not isinstance(call, exp.Sum | exp.Avg):
            return call
        # Overflow of an aggregate can't be caught by trying an expression.
        overflow = _if(exp.GT(this=exp.Count(this=call.this.copy()), expression=exp.Literal.number(0)), _FAILURE)
        tried = exp.Anonymous(this=f"try_{call.key}", expressions=[call.this])
        return exp.Coalesce(this=tried, expressions=[overflow])

    def _value(self, node: exp.Expr, name: str) -> exp.Expr:
        self.values.append((name, node.copy()))
        return exp.column(f"v{len(self.values) - 1}", table="_values")


_FAILURE = exp.Anonymous(this="raise_error", expressions=[exp.Literal.string("overflow")])


def _if(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def _groups(statement: Statement) -> Iterator[exp.Expr]:
    group, selects = statement.tree.args["group"], statement.tree.selects
    if group.args.get("all"):
        yield from (each.unalias() for each in selects if not any(is_aggregate(node) for node in each.walk()))
    for given in group.expressions:
        for each in given.expressions if isinstance(given, exp.Tuple) else [given.unnest()]:
            yield selects[int(each.name) - 1].unalias() if each.is_int else each


def _without_aliases(statement: Statement, joined: DataFrame) -> Callable[[exp.Expr], exp.Expr]:
    """A function that replaces names of the SELECT's own columns by their expressions."""

    def plain(node: exp.Expr) -> exp.Expr:
        is_alias = isinstance(node, exp.Column) and not node.table and node.name not in joined.columns
        if is_alias and node.name in statement.projections:
            return statement.projections[node.name].unalias().transform(plain)
        return node

    return lambda node: node.transform(plain)


def _column(node: exp.Expr) -> Column:
    return value_of(node.sql(DIALECT, comments=False), given="TRUE")


def _tried(named: Mapping[str, exp.Expr]) -> Column:
    """The values as a struct, or NULL if one of them fails."""
    return try_eval(F.struct(*(_column(node).alias(name) for name, node in named.items())))


def _keys(statement: Statement, projections: Mapping[str, exp.Expr]) -> Column:
    keys = (_tried({key: projections[key]})[key].alias(key) for key in statement.table.keys)
    return F.to_json(F.struct(*keys), {"ignoreNullFields": "false"})


def _reason(parts: Sequence[tuple[str, exp.Expr]]) -> Column:
    """Which expressions fail on a row, and with which values; empty if none."""

    def told(name: str, node: exp.Expr) -> Column:
        used = (column.sql(DIALECT) for column in node.find_all(exp.Column))
        values = {each: F.expr(each).cast("string") for each in used}
        line = told_with(f"{name}: {node.sql(DIALECT, comments=False)} fails", values)
        return F.coalesce(*_errors(node), line)

    failures = [F.when(_tried({"value": node}).isNull(), told(name, node)) for name, node in parts]
    return F.concat_ws("; ", *failures)


def _errors(node: exp.Expr) -> list[Column]:
    """What the project's functions say that fail in an expression."""
    return [F.expr(error) for error in errors_in(node.sql(DIALECT, comments=False), "TRUE")]


def _reason_of_group(parts: Mapping[str, exp.Expr], statement: Statement) -> Column:
    """Which expressions fail on a group; empty if none."""
    written = {**statement.projections, "HAVING": statement.tree.args.get("having") or exp.true()}

    def told(name: str, node: exp.Expr) -> Column:
        line = F.lit(f"{name}: {written[name].unalias().sql(DIALECT, comments=False)} fails")
        return F.coalesce(*_errors(node), line)

    failures = [F.when(_tried({"value": node}).isNull(), told(name, node)) for name, node in parts.items()]
    return F.concat_ws("; ", *failures)
