import pytest

from expectations.results import usual_growth_of
from expectations.suites import Suite, each_row, types
from jobs.pipeline import ENRICHMENTS, ENTITIES, SUITES, TOPICS
from lakehouse.decoding import MALFORMED
from lakehouse.errors import ConfigurationError


def test_something_is_expected_of_each_table() -> None:
    of_facts = [table for each in ENRICHMENTS for table in each.places]
    tables = [*(topic.bronze_table for topic in TOPICS), *(each.table.name for each in ENTITIES), *of_facts]
    assert sorted(suite.table for suite in SUITES) == sorted([*tables, MALFORMED.name])


def test_rules_have_names_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match=r"^silver.things: two rules have the same name: is_true, is_true$"):
        Suite(table="silver.things", key=("id",), rules=(each_row("is_true", "true"), each_row("is_true", "1 = 1")))


def test_types_are_those_of_columns_whatever_commas_are_in_them() -> None:
    columns = "id BIGINT, price DECIMAL(18, 2), place STRUCT<x: DECIMAL(9, 2), tags: ARRAY<STRING>>, day DATE"
    assert types(columns).holds == (
        f"typeof(first(struct(id, price, place, day))) = typeof(CAST(NULL AS STRUCT<{columns}>))"
    )


@pytest.mark.parametrize(
    ("rows", "usual"), [([], None), ([10, 20, 30], None), ([10, 20, 20, 15, 20, 50], 10), ([0, 1, 3, 6], 2)]
)
def test_what_is_usual_is_the_median_of_at_least_three_runs_that_grew(rows: list[int], usual: float | None) -> None:
    assert usual_growth_of(rows) == usual
