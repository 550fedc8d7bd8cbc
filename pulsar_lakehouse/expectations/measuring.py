"""Measures rules in few queries: one for those on figures, and one for those on the rows of several tables.

If a query fails, it is divided, so that only the broken rule can't be evaluated.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.access import is_within
from pulsar_lakehouse.expectations.suites import Kind, Rule, beside_figures, with_figures
from pulsar_lakehouse.spark.declared_sql import try_eval, value_of

Asked = TypeVar("Asked")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was found: how many of the `rows` are `failing`, or whether the rule `holds`, or an `error`."""

    rows: int | None = None
    failing: int | None = None
    holds: bool | None = None
    observed: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class OfRows:
    """A rule about rows of a table, in which `key` identifies one. `figures` are those of the table.

    No example shows the `personal` columns.
    """

    table: str
    rule: Rule
    rows: DataFrame
    key: tuple[str, ...]
    personal: tuple[str, ...] = ()
    figures: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class OfFigures:
    """A rule about the figures of a table, of which so many `rows` are validated."""

    table: str
    rule: Rule
    figures: Mapping[str, object]
    rows: int


def measure_rows(rules: Sequence[OfRows]) -> list[Measured]:
    """Measure rules by a query that reads each frame once; the rules of a frame follow each other.

    One failing row of a rule is looked up, only if there are any.
    """
    answers = _answers(_ask_rows, rules)
    return [_error(found) or _found_in_rows(asked, *found) for asked, found in zip(rules, answers, strict=True)]


def measure_figures(spark: SparkSession, rules: Sequence[OfFigures]) -> list[Measured]:
    """Measure rules by a query without a job: Spark evaluates it while it plans."""
    answers = _answers(partial(_ask_figures, spark), rules)
    return [
        _error(found) or _found_of_all(asked.rule, asked.figures, asked.rows, found)
        for asked, found in zip(rules, answers, strict=True)
    ]


def _answers(ask: Callable[[Sequence[Asked]], list[Any]], questions: Sequence[Asked]) -> list[Any]:
    """The answer to each question; an exception is that to one that fails alone."""
    try:
        return ask(questions) if questions else []
    except Exception as error:  # Spark's, of many classes
        if len(questions) == 1:
            return [error]
        half = len(questions) // 2
        return [*_answers(ask, questions[:half]), *_answers(ask, questions[half:])]


def _error(found: Any) -> Measured | None:
    return Measured(error=str(found).partition("\n")[0]) if isinstance(found, Exception) else None


def _ask_figures(spark: SparkSession, rules: Sequence[OfFigures]) -> list[str]:
    measured = F.array(*(_of_all(asked.rule, asked.figures) for asked in rules))
    return list(spark.sql("SELECT * FROM VALUES (0)").select(measured).collect()[0][0])


def _ask_rows(rules: Sequence[OfRows]) -> list[tuple[int, str]]:
    """For each rule, the number of rows, and what was measured of them."""
    frames = [_aggregated([*group]) for _, group in groupby(rules, key=lambda asked: id(asked.rows))]
    numbered = [frame.select(F.lit(place).alias("place"), "rows", "measured") for place, frame in enumerate(frames)]
    found = sorted(reduce(DataFrame.union, numbered).collect())
    return [(rows, each) for _, rows, measured in found for each in measured]


def _aggregated(rules: Sequence[OfRows]) -> DataFrame:
    """One row: the number of rows, and what is measured of them for each rule.

    First, each row is only marked. Of rows in memory, Spark does so while it plans, and its job handles only the marks.
    """
    marks, measured = {}, []
    for place, asked in enumerate(rules):
        mark = f"_mark{place}"
        match asked.rule.kind:
            case Kind.KEY:
                marks[mark] = F.struct(*asked.rule.holds.split(", "))
                measured.append(F.count("*") - F.count_distinct(mark))
            case Kind.TABLE:
                measured.append(_of_all(asked.rule, asked.figures))
            case Kind.TYPES:
                measured.append(F.lit(_types_hold(asked.rule, asked.rows)))
            case _:
                marks[mark] = _fails(asked.rule)
                measured.append(F.count_if(mark))
    others = ["*"] if any(asked.rule.kind is Kind.TABLE for asked in rules) else []
    marked = rules[0].rows.select(*others, *(mark.alias(name) for name, mark in marks.items()))
    return marked.agg(
        F.count("*").alias("rows"), F.array(*(each.cast("string") for each in measured)).alias("measured")
    )


def _fails(rule: Rule) -> Column:
    """Whether a rule is not TRUE for a row: it is FALSE or NULL, or ends in an error."""
    return ~F.coalesce(try_eval(value_of(rule.condition, given="TRUE")), F.lit(False))


def _of_all(rule: Rule, figures: Mapping[str, object]) -> Column:
    """JSON with the value of SQL over aggregates or figures, and of the SQL that the report shows, if there is any."""
    holds, shows = (F.expr(with_figures(sql or "NULL", figures)) for sql in (rule.holds, rule.shows))
    return F.to_json(F.struct(holds.alias("holds"), shows.cast("string").alias("shown")))


def _types_hold(rule: Rule, rows: DataFrame) -> str:
    held, declared = (field.dataType.simpleString() for field in rows.select(*map(F.expr, rule.both_types)).schema)
    return json.dumps({"holds": held == declared, "shown": rule.holds})


def _found_in_rows(asked: OfRows, rows: int, measured: str) -> Measured:
    if asked.rule.kind in (Kind.TABLE, Kind.TYPES):
        return _found_of_all(asked.rule, asked.figures, rows, measured)
    failing, observed = int(measured), f"all {rows:,} rows" if rows else "no rows"
    if failing:
        observed = f"{failing:,} of {rows:,} rows"
        if example := _example(asked):
            observed += f", such as {example}"
    return Measured(rows=rows, failing=failing, observed=observed)


def _found_of_all(rule: Rule, figures: Mapping[str, object], rows: int, measured: str) -> Measured:
    found = json.loads(measured)
    observed = found.get("shown", "NULL") if rule.shows or rule.kind is Kind.TYPES else beside_figures(rule, figures)
    return Measured(rows=rows, holds=found.get("holds") is True, observed=observed)


def _example(asked: OfRows) -> str | None:
    """A failing row as JSON: its key and the columns that the rule names, or the key that several rows have.

    None if all of these are personal.
    """
    if asked.rule.kind is Kind.KEY:
        counted = asked.rows.groupBy(*asked.rule.holds.split(", ")).count()
        failing = counted.where("count > 1").drop(
            "count", *(name for name in counted.columns if is_within(asked.personal, name))
        )
    else:
        named = re.findall(r"[a-z_]\w*(?:\.[a-z_]\w*)*", f"{asked.rule.holds}, {asked.rule.condition}")
        shown = dict.fromkeys(
            name
            for name in (*asked.key, *named)
            if name.partition(".")[0] in asked.rows.columns and not is_within(asked.personal, name)
        )
        failing = asked.rows.where(_fails(asked.rule)).select(*(F.col(name).alias(name) for name in shown))
    if not failing.columns:
        return None
    first = failing.select(F.to_json(F.struct("*"))).first()
    return str(first[0]) if first else None
