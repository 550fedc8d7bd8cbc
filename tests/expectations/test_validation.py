"""Each kind of rule, where it passes and where it fails: only TRUE passes."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse import function
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.expectations import report
from pulsar_lakehouse.expectations.results import RESULTS, Result, last_validated
from pulsar_lakehouse.expectations.scopes import rows_of
from pulsar_lakehouse.expectations.suites import (
    CHANGE_FEED,
    Kind,
    Rule,
    Severity,
    Suite,
    each_row,
    known,
    logged,
    not_null,
    types,
    unique,
    whole,
)
from pulsar_lakehouse.expectations.validation import validate
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.functions import declare
from pulsar_lakehouse.tables import reading
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home


@function("name STRING", returns="INT")
def letters_of(name: pa.StringArray) -> pa.Array:
    return pc.utf8_length(name)


@pytest.fixture(autouse=True, scope="module")
def functions() -> Iterator[None]:
    declare([letters_of])
    yield
    declare([])


COLUMNS = "id BIGINT, name STRING, price DOUBLE"
FEED = {"delta.enableChangeDataFeed": "true"}
THINGS = Table(name="silver.things", columns=COLUMNS, properties=FEED)
NOTHING = Table(name="silver.nothing", columns=COLUMNS)
ROWS = [(1, "pie", 2.5), (2, None, -1.0), (2, "<b>cake</b>", 3.0)]

# Each rule, with its outcome and what it found.
RULES: dict[Rule, tuple[str, str]] = {
    each_row("is_true", "price < 9"): ("passed", "all 3 rows"),
    each_row("is_false_of_one", "price > 0"): ("failed", '1 of 3 rows, such as {"id":2,"price":-1.0}'),
    each_row("is_null_of_one", "name != 'ham'"): ("failed", '1 of 3 rows, such as {"id":2}'),
    each_row("is_no_markup", "name IS NULL OR name = 'pie'"): (
        "failed",
        '1 of 3 rows, such as {"id":2,"name":"<b>cake',
    ),
    each_row("calls_a_function", "name IS NULL OR letters_of(name) < 9"): (
        "failed",
        '1 of 3 rows, such as {"id":2,"name":"<b>cake',
    ),
    each_row("is_a_warning", "price > 0", Severity.WARNING): ("failed", '1 of 3 rows, such as {"id":2,"price":-1.0}'),
    each_row("can_not_be_resolved", "weight > 0"): ("error", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
    not_null("price")[0]: ("passed", "all 3 rows"),
    unique("id", "name"): ("passed", "all 3 rows"),
    unique("id"): ("failed", '1 of 3 rows, such as {"id":2}'),
    known("name", to="silver.things"): ("failed", '1 of 3 rows, such as {"id":2}'),
    replace(known("name", to="silver.things", may_be_null=True), name="is_known_or_null"): ("passed", "all 3 rows"),
    known("id", "name", to="silver.things"): ("failed", '1 of 3 rows, such as {"id":2}'),
    known("name", "price", to="silver.things"): ("failed", '1 of 3 rows, such as {"id":2,"price":-1.0}'),
    known("price", to="silver.prices"): ("failed", '2 of 3 rows, such as {"id":2,"price":-1.0}'),
    types(COLUMNS): ("passed", "the declared types"),
    whole("is_true_of_all", "max(price) = 3", shows="max(price)"): ("passed", "3.0"),
    whole("is_false_of_all", "max(price) = 4", shows="max(price)"): ("failed", "3.0"),
    whole("is_null_of_all", "max(price) > NULL"): ("failed", "max(price) > NULL"),
    whole("has_rows_and_figures", "max(price) = {rows}"): ("passed", "max(price) = rows, with rows = 3"),
    logged("has_figures", "{rows} = 3 AND {silver.nothing} = 0"): (
        "passed",
        "rows = 3 AND silver.nothing = 0, with rows = 3, silver.nothing = 0",
    ),
    logged("shows_a_figure", "{rows} > 3", shows="{rows} || ' rows'"): ("failed", "3 rows"),
    logged("has_an_unknown_figure", "{silver.unknown} = 0"): (
        "failed",
        "silver.unknown = 0, with silver.unknown = NULL",
    ),
    logged("can_not_be_resolved_by_figures", "{rows} > weight"): ("error", "[UNRESOLVED_COLUMN"),
    logged("raises_by_figures", "{rows} / {silver.nothing} > 0"): ("error", "[DIVIDE_BY_ZERO]"),
}
SUITE = Suite(table=THINGS.name, key=("id",), arrives=CHANGE_FEED, rules=tuple(RULES))
POSITIVE, FEW = each_row("is_positive", "price > 0"), logged("are_few", "{rows} < 9")


@pytest.fixture(scope="module")
def project(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    own = own_home(lake.settings, tmp_path_factory.mktemp("quality"))
    prices = Table(name="silver.prices", columns="price DOUBLE")
    for table, rows in ((THINGS, ROWS), (NOTHING, []), (prices, [(2.5,)])):
        Lake(lake.spark, own).create(table)
        Lake(lake.spark, own).table(table.name).append(lake.spark.createDataFrame(rows, table.ddl))
    return own


@pytest.fixture(scope="module")
def results(spark: SparkSession, project: Settings) -> dict[str, Result]:
    return {result.rule: result for result in validate(Lake(spark, project), [SUITE])}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_passes_only_when_it_is_true(results: dict[str, Result], rule: Rule) -> None:
    outcome, observed = RULES[rule]
    found = results[rule.name]
    assert (found.outcome, found.observed.startswith(observed)) == (outcome, True), found.observed


def test_a_failed_critical_rule_stops_and_so_does_any_that_can_not_be_evaluated(results: dict[str, Result]) -> None:
    assert results["is_false_of_one"].stops
    assert not results["is_a_warning"].stops
    assert not results["is_true"].stops
    assert replace(results["can_not_be_resolved"], severity=Severity.WARNING).stops


def test_the_results_are_a_table(project: Settings, results: dict[str, Result]) -> None:
    kept = f"SELECT rule, outcome, severity, rows, failing, table_rows, scope FROM {RESULTS.name}"
    found = query(project, f"{kept} WHERE rule IN ('is_a_warning', 'is_true') ORDER BY rule").fetchall()
    assert found == [
        ("is_a_warning", "failed", "warning", 3, 1, 3, "whole"),
        ("is_true", "passed", "critical", 3, 0, 3, "whole"),
    ]


def test_the_pages_load_nothing_from_elsewhere(project: Settings, results: dict[str, Result]) -> None:
    index = project.report
    pages = list(index.parent.rglob("*.html"))
    assert {page.stem for page in pages} == {"index", "things", "silver.things-silver.things"}
    for page in pages:
        text = page.read_text()
        assert re.findall(r'(?:src|<link[^>]*href)\s*=\s*"(?:https?:)?//|url\([^)]*//', text) == []
        for file in re.findall(r'<script src="([^"]*)"|<link rel="stylesheet" href="([^"]*)"', text):
            assert (page.parent / "".join(file)).stat().st_size > 0
    [shown] = [page.read_text() for page in pages if page.stem == "silver.things-silver.things"]
    assert "is false of one (critical): price &gt; 0" in shown
    assert "<b>cake" not in shown
    assert "&lt;b&gt;cake" in shown


def outcomes(results: list[Result]) -> list[tuple[Any, ...]]:
    return [(result.rule, result.outcome, result.rows, result.scope) for result in results]


def test_no_row_is_no_pass_unless_the_table_may_be_empty(spark: SparkSession, project: Settings) -> None:
    suite = Suite(table=NOTHING.name, key=("id",), rules=(POSITIVE, unique("id"), FEW))
    assert outcomes(validate(Lake(spark, project), [suite])) == [
        ("is_positive", "failed", 0, "whole"),
        ("id_is_unique", "failed", 0, "whole"),
        ("are_few", "passed", 0, "whole"),
    ]
    may_be = replace(suite, may_be_empty=True)
    assert {result.outcome for result in validate(Lake(spark, project), [may_be])} == {"passed"}


def test_a_row_on_which_a_rule_raises_fails_it(spark: SparkSession, project: Settings) -> None:
    raises = each_row("raises", "1 / (price - 3) < 9", Severity.WARNING)
    [found] = validate(Lake(spark, project), [Suite(table=THINGS.name, key=("id",), rules=(raises,))])
    assert (found.outcome, found.stops) == ("failed", False)
    assert found.observed == '1 of 3 rows, such as {"id":2,"price":3.0}'


def test_a_rule_of_a_table_that_raises_is_no_pass(spark: SparkSession, project: Settings) -> None:
    raises = whole("raises", "1 / (max(price) - 3) < 9", Severity.WARNING)
    [found] = validate(Lake(spark, project), [Suite(table=THINGS.name, key=("id",), rules=(raises,))])
    assert (found.outcome, found.stops) == ("error", True)
    assert "DIVIDE_BY_ZERO" in found.observed


def test_what_an_error_quotes_is_no_markup_in_the_page(spark: SparkSession, project: Settings) -> None:
    quotes = whole("quotes", "max(CAST(nullif(name, 'pie') AS INT)) > 0")
    [found] = validate(Lake(spark, project), [Suite(table=THINGS.name, key=("id",), rules=(quotes,))])
    assert "'<b>cake</b>'" in found.observed
    [page] = [page.read_text() for page in project.report.parent.rglob("silver.things-silver.things.html")]
    assert "<b>cake" not in page
    assert "&lt;b&gt;cake" in page


def test_of_rows_in_memory_the_same_is_found(
    spark: SparkSession, project: Settings, results: dict[str, Result]
) -> None:
    """Only Spark compares prices, so the rows of `results` are not in memory."""
    rules = tuple(rule for rule in RULES if rule.kind is not Kind.REFERENCE or "price" not in rule.holds)
    found = validate(Lake(spark, project), [replace(SUITE, rules=rules)])
    expected = {rule.name: without_error(results[rule.name]) for rule in rules}
    assert {each.rule: without_error(each) for each in found} == expected


def without_error(result: Result) -> Result:
    """An error also suggests columns, of which there are fewer."""
    return replace(result, observed="") if result.outcome == "error" else result


def test_without_the_files_of_the_report_all_is_evaluated_and_kept(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str, cache: Path) -> list[Path]:
        raise LakehouseError("could not download jQuery [1]")

    monkeypatch.setattr(report, "downloaded", fail)
    suite = Suite(table=THINGS.name, key=("id",), rules=(FEW,))
    assert outcomes(validate(Lake(spark, project), [suite])) == [("are_few", "passed", 3, "whole")]
    assert "no report: could not download jQuery [1]\n" in capsys.readouterr().err
    assert not project.report.exists()


def test_only_new_rows_are_looked_at(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    Lake(lake.spark, project).create(THINGS)
    Lake(lake.spark, project).table(THINGS.name).append(lake.spark.createDataFrame(ROWS, COLUMNS))
    reported = replace(POSITIVE, severity=Severity.WARNING)
    suite = Suite(table=THINGS.name, key=("id",), arrives=CHANGE_FEED, rules=(reported, FEW))
    assert outcomes(validate(Lake(lake.spark, project), [suite], only_new=True)) == [
        ("is_positive", "failed", 3, "whole"),
        ("are_few", "passed", 3, "whole"),
    ]
    assert outcomes(validate(Lake(lake.spark, project), [suite], only_new=True)) == [
        ("are_few", "passed", 0, "nothing new")
    ]
    Lake(lake.spark, project).table(THINGS.name).append(lake.spark.createDataFrame([(4, "tea", 1.5)], COLUMNS))
    assert outcomes(validate(Lake(lake.spark, project), [suite], only_new=True)) == [
        ("is_positive", "passed", 1, "new"),
        ("are_few", "passed", 1, "new"),
    ]
    critical = replace(suite, rules=(POSITIVE,))
    again = [("is_positive", "failed", 4, "whole")]
    assert outcomes(validate(Lake(lake.spark, project), [critical])) == again
    assert outcomes(validate(Lake(lake.spark, project), [critical], only_new=True)) == again


def test_rows_that_came_are_the_same_in_memory_and_by_spark(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = own_home(lake.settings, tmp_path)
    own = Lake(lake.spark, project)
    own.create(THINGS)
    own.table(THINGS.name).append(lake.spark.createDataFrame([(1, "pie", 2.5), (2, "tea", 1.5)], COLUMNS))
    is_known = known("id", to=THINGS.name)
    suite = Suite(table=THINGS.name, key=("id",), arrives=CHANGE_FEED, rules=(POSITIVE, unique("id"), is_known))
    validate(own, [suite])
    [before] = last_validated(project).values()
    own.table(THINGS.name).append(lake.spark.createDataFrame([(2, "cake", -4.5), (3, "ham", 0.5)], COLUMNS))
    own.table(THINGS.name).delta.delete("id = 1")
    own.table(THINGS.name).delta.update("id = 3", {"price": "5.5"})
    in_memory = rows_of(suite, before, quick=own, lake=own)
    monkeypatch.setattr(reading, "READ_BYTES", -1)
    by_spark = rows_of(suite, before, quick=own, lake=own)
    found = [(2, "cake", -4.5, True), (2, "tea", 1.5, True), (3, "ham", 5.5, True)]
    assert sorted(map(tuple, in_memory.collect())) == found
    assert sorted(map(tuple, by_spark.collect())) == found


def test_of_a_key_that_changed_all_is_looked_at_as_it_is_now(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    Lake(lake.spark, project).create(THINGS)
    Lake(lake.spark, project).table(THINGS.name).append(
        lake.spark.createDataFrame([(1, "pie", 2.5), (2, "tea", 1.5)], COLUMNS)
    )
    suite = Suite(table=THINGS.name, key=("id",), arrives=CHANGE_FEED, rules=(POSITIVE, unique("id")))
    validate(Lake(lake.spark, project), [suite])
    for price in ("-1.0", "3.0"):
        Lake(lake.spark, project).table(THINGS.name).delta.update("id = 1", {"price": price})
    assert outcomes(validate(Lake(lake.spark, project), [suite], only_new=True)) == [
        ("is_positive", "passed", 1, "new"),
        ("id_is_unique", "passed", 1, "new"),
    ]
    Lake(lake.spark, project).table(THINGS.name).append(lake.spark.createDataFrame([(2, "cake", 4.5)], COLUMNS))
    assert outcomes(validate(Lake(lake.spark, project), [suite], only_new=True)) == [
        ("is_positive", "passed", 2, "new"),
        ("id_is_unique", "failed", 2, "new"),
    ]


def test_a_key_may_be_a_time(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(hours := Table(name="gold.hours", columns="at TIMESTAMP NOT NULL, price DOUBLE", properties=FEED))
    suite = Suite(table=hours.name, key=("at",), arrives=CHANGE_FEED, rules=(POSITIVE, unique("at")))
    own.table(hours.name).append(lake.spark.sql("SELECT timestamp'2026-01-01 00:00' AS at, 1.0D AS price"))
    validate(own, [suite])
    own.table(hours.name).append(lake.spark.sql("SELECT timestamp'2026-01-01 01:00' AS at, -1.0D AS price"))
    assert outcomes(validate(own, [suite], only_new=True)) == [
        ("is_positive", "failed", 1, "new"),
        ("at_is_unique", "passed", 1, "new"),
    ]
