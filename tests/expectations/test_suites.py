import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.expectations.results import RESULTS, last_validated, usual_growth_of
from pulsar_lakehouse.expectations.suites import Kind, Severity, Suite, each_row, types
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home
from tests.shop import ENRICHMENTS, ENTITIES, SUITES, TOPICS


def test_something_is_expected_of_each_table() -> None:
    of_facts = [table for each in ENRICHMENTS for table in each.places]
    of_state = [table.name for each in ENTITIES for table in (each.table, each.history)]
    tables = [*(topic.bronze_table for topic in TOPICS), *of_state, *of_facts]
    assert sorted(suite.table for suite in SUITES) == sorted([*tables, MALFORMED.name])


def test_rules_have_names_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match=r"^check is_true: silver.things has a rule of this name already"):
        Suite(table="silver.things", key=("id",), rules=(each_row("is_true", "true"), each_row("is_true", "1 = 1")))


def test_types_are_those_of_columns_whatever_commas_are_in_them() -> None:
    columns = "id BIGINT, price DECIMAL(18, 2), place STRUCT<x: DECIMAL(9, 2), tags: ARRAY<STRING>>, day DATE"
    assert types(columns).both_types == ("struct(id, price, place, day)", f"CAST(NULL AS STRUCT<{columns}>)")


@pytest.mark.parametrize(
    ("rows", "usual"), [([], None), ([10, 20, 30], None), ([10, 20, 20, 15, 20, 50], 10), ([0, 1, 3, 6], 2)]
)
def test_what_is_usual_is_the_median_of_at_least_three_runs_that_grew(rows: list[int], usual: float | None) -> None:
    assert usual_growth_of(rows) == usual


def test_of_a_table_that_was_recreated_the_last_version_counts(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    judged = {"table_name": "silver.things", "table_rows": 3, "scope": "whole", "rule": "holds", "severity": "critical"}
    rows = [
        {**judged, "run": str(day), "validated_at": datetime(2026, 1, day, tzinfo=UTC), "version": version}
        for day, version in ((1, 9), (2, 2))
    ]
    write_deltalake(
        project.table_path(RESULTS.name), pa.Table.from_pylist([{**row, "outcome": "passed"} for row in rows])
    )
    assert last_validated(project)["silver.things"].version == 2


@pytest.mark.parametrize(("lag", "holds"), [(1, True), (0, False)])
def test_messages_that_are_not_merged_yet_are_not_lost(lag: int, holds: bool) -> None:
    [suite] = [suite for suite in SUITES if suite.table == "silver.users"]
    [rule] = [rule for rule in suite.rules if rule.name == "nothing_is_lost"]
    figures = {"lag": lag, "bronze.users": 5, "silver.users_history": 3, "quarantine.malformed.users": 1}
    sql = re.sub(r"\{([\w.]+)\}", lambda name: str(figures[name[1]]), rule.holds)
    assert duckdb.execute(f"SELECT {sql}").fetchall() == [(holds,)]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_message_lands_once(topic: Topic) -> None:
    [suite] = [suite for suite in SUITES if suite.table == topic.bronze_table]
    [rule] = [rule for rule in suite.rules if rule.kind is Kind.KEY]
    assert (rule.holds, rule.severity) == ("partition, ledger_id, entry_id, batch_index", Severity.CRITICAL)
