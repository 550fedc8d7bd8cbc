"""`lakehouse run --through-sql`, as Airflow runs it."""

from pathlib import Path

import pytest
import typer

from pulsar_lakehouse.cli import commands as cli
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.errors import ConfigurationError, QualityError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import environment, own_topics
from tests.shop import TOPICS

WORKLOAD = Workload(users=20, orders=200, late_users=0.3)


def run(project: Settings, *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(project).items():
            patch.setenv(name, value)
        typer.main.get_command(cli.app)(["run", *arguments], standalone_mode=False)


def counted(project: Settings) -> tuple[int, int]:
    """The orders in gold, and those that a table declared in SQL counts."""
    [[in_gold]] = query(project, "SELECT count(*) FROM gold.enriched_orders").fetchall()
    [[by_hour]] = query(project, "SELECT sum(orders) FROM gold.revenue_by_hour").fetchall()
    return in_gold, by_hour


def test_sql_tables_are_refreshed_unless_what_comes_before_fails(
    lake: Lake, endpoint: Endpoint, tmp_path: Path
) -> None:
    project = own_topics(lake.settings, endpoint, tmp_path)
    produce([(topic, WORKLOAD.first(topic.name)) for topic in TOPICS], endpoint, project)
    run(project, "--through-sql")
    first, by_hour = counted(project)
    assert first == by_hour > 0

    produce([(topic, WORKLOAD.late(topic.name)) for topic in TOPICS], endpoint, project)
    run(project)
    Lake(lake.spark, project).table(ORDERS.gold_table).delta.update("line_item_id = 1", {"user.id": "77L"})
    with pytest.raises(QualityError, match=r"gold\.enriched_orders user_is_its_own"):
        run(project, "--through-sql")
    second, by_hour = counted(project)
    assert second > first == by_hour


def test_a_run_that_goes_on_does_not_refresh() -> None:
    with pytest.raises(ConfigurationError, match=r"^--through-sql can't be combined with --every"):
        cli.run(every="2s", through_sql=True)
