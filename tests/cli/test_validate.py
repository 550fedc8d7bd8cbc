"""`lakehouse validate` on tables that the pipeline has made."""

from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession

from pulsar_lakehouse.cli import commands as cli
from pulsar_lakehouse.cli.validate import QUOTED, quoted
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError, QualityError
from pulsar_lakehouse.expectations.results import RESULTS
from pulsar_lakehouse.gold.sql.refresh import refresh
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home
from tests.messages import item, message, order, tombstone, user
from tests.shop import ENRICHMENTS, ENTITIES, SQL_TABLES, SUITES

pytestmark = pytest.mark.usefixtures("generated_code")

MESSAGES = [
    user(1, emailAddress="ada@example.org"),
    user(2, place=1, emailAddress="no address"),
    tombstone("users", "3", place=2),
    item(1),
    *(order(line, place=line) for line in range(1, 4)),
    order(1, place=4),
    order(4, place=5, user=9),
    order(5, place=6, price=-1.0),
    message("orders", b"{}", key="4", place=7),
]
WARNINGS = {
    ("bronze.orders", "is_fresh"),
    ("bronze.users", "is_fresh"),
    ("bronze.items", "is_fresh"),
    ("silver.users", "email_is_an_address"),
    ("quarantine.waiting_orders", "waiting_are_few"),
    ("quarantine.duplicate_orders", "duplicate_are_few"),
    ("quarantine.malformed", "malformed_orders_are_few"),
}


@pytest.fixture(scope="module")
def project(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    own = own_home(lake.settings, tmp_path_factory.mktemp("validated"))
    land_literally(Lake(lake.spark, own), MESSAGES)
    catch_up(own, merging(Lake(lake.spark, own), ENTITIES))
    catch_up(own, enriching(Lake(lake.spark, own), ENRICHMENTS))
    return own


def validate(settings: Settings, *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEHOUSE_HOME", str(settings.home))
        typer.main.get_command(cli.app)(["validate", *arguments], standalone_mode=False)


def test_what_the_pipeline_makes_passes_and_what_is_damaged_does_not(
    spark: SparkSession, project: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    validate(project)
    assert f"Report: file://{project.home}/quality/index.html" in capsys.readouterr().out
    failed = query(
        project, f"SELECT table_name, rule, severity FROM {RESULTS.name} WHERE outcome != 'passed'"
    ).fetchall()
    assert {(table, rule) for table, rule, _ in failed} == WARNINGS
    assert {severity for _, _, severity in failed} == {"warning"}
    judged = query(project, f"SELECT DISTINCT table_name FROM {RESULTS.name}").fetchall()
    assert {table for (table,) in judged} == {suite.table for suite in SUITES}

    by_hour, *_ = SQL_TABLES
    with pytest.raises(LakehouseError, match=f"{by_hour.name} is not there yet: run `lakehouse refresh` first"):
        validate(project, by_hour.name)
    refresh(Lake(spark, project), by_hour)
    validate(project)
    passed = f"SELECT DISTINCT rule FROM {RESULTS.name} WHERE table_name = '{by_hour.name}' AND outcome = 'passed'"
    assert ("category_window_start_is_unique",) in query(project, passed).fetchall()
    Lake(spark, project).table(by_hour.name).append(Lake(spark, project).table(by_hour.name).read())
    with pytest.raises(QualityError, match=f"{by_hour.name} category_window_start_is_unique$"):
        validate(project, by_hour.name)

    gold = Lake(spark, project).table(ORDERS.gold_table).delta
    gold.delete("line_item_id = 1")
    gold.update("line_item_id = 2", {"price": "-1.0", "user.id": "77L"})
    with pytest.raises(QualityError) as error:
        validate(project, "bronze.orders", "gold.enriched_orders")
    assert str(error.value) == (
        "critical rules do not pass: bronze.orders nothing_is_lost, gold.enriched_orders user_id_is_known, "
        "gold.enriched_orders user_is_its_own and 1 more"
    )


def test_a_table_of_which_nothing_is_expected(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"^gold.nothing: no rules are declared for it; there are rules for b"):
        validate(own_home(settings, tmp_path), "gold.nothing")


def test_what_a_note_quotes_is_no_link() -> None:
    assert quoted("such as `[x](http://e.org)`") == "`such as '[x](http://e.org)'`"
    assert quoted("x" * 1000) == f"`{'x' * QUOTED}`"
