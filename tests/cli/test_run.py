"""`lakehouse run`, also with `--through-sql`."""

from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession

from pulsar_lakehouse.cli import commands as cli
from pulsar_lakehouse.cli.run import run_command
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.errors import ConfigurationError, QualityError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.inspection.table_status import table_statuses
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.cli.outcome import Command
from tests.lake import environment, own_home, own_topics
from tests.shop import SQL_TABLES, TOPICS, WRITTEN

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


def judged(project: Settings) -> set[tuple[str, int]]:
    """The tables declared in SQL, with the version that was validated last."""
    found = query(project, "SELECT table_name, max(version) FROM quality.results GROUP BY ALL").fetchall()
    return {(table, version) for table, version in found if table in {each.name for each in SQL_TABLES}}


def test_sql_tables_are_refreshed_unless_what_comes_before_fails(
    lake: Lake, endpoint: Endpoint, tmp_path: Path
) -> None:
    project = own_topics(lake.settings, endpoint, tmp_path)
    produce([(topic, WORKLOAD.first(topic.name)) for topic in TOPICS], endpoint, project)
    run(project, "--through-sql")
    first, by_hour = counted(project)
    assert first == by_hour > 0
    versions = {status.name: status.version for status in table_statuses(project)}
    assert judged(project) == {(table.name, versions[table.name]) for table in SQL_TABLES}

    produce([(topic, WORKLOAD.late(topic.name)) for topic in TOPICS], endpoint, project)
    run(project)
    Lake(lake.spark, project).table(ORDERS.gold_table).delta.update("line_item_id = 1", {"user.id": "77L"})
    with pytest.raises(QualityError, match=r"gold\.enriched_orders user_is_its_own"):
        run(project, "--through-sql")
    second, by_hour = counted(project)
    assert second > first == by_hour


def test_a_run_that_goes_on_does_not_refresh() -> None:
    with pytest.raises(ConfigurationError, match=r"^--through-sql can't be combined with --every"):
        run_command(every="2s", through_sql=True)


def test_a_run_without_a_broker(lakehouse: Command, spark: SparkSession) -> None:
    done = lakehouse("run")
    assert (done.code, done.line) == (
        1,
        "lakehouse: no broker is running: start it with `lakehouse up`, or set pulsar.service_url and pulsar.admin_url",
    )


def test_a_warehouse_that_can_not_be_written(lakehouse: Command, spark: SparkSession, project: Settings) -> None:
    done = lakehouse("run", **environment(project, LAKEHOUSE_WAREHOUSE="/dev/null/warehouse"))
    assert (done.code, done.line) == (78, "lakehouse: not writable: /dev/null/warehouse: Not a directory")


def test_the_second_of_two_runs_names_the_first(lakehouse: Command, project: Settings) -> None:
    with write_lease(project, WRITTEN):
        done = lakehouse("run", **environment(project))
    assert done.code == 75
    assert done.line.startswith("lakehouse: bronze.items is being written by pid ")
    assert done.line.endswith("UTC): wait until it ends, or stop it")


@pytest.mark.parametrize("table", ["silver.users", "gold.enriched_orders"])
def test_a_rebuild_between_two_rounds_is_refused_as_the_run_has_the_old_declarations(
    lakehouse: Command, settings: Settings, tmp_path: Path, table: str
) -> None:
    project = own_home(settings, tmp_path)
    with write_lease(project, WRITTEN, command="run --every 2s", kind="rounds") as lease, lease.lent():
        done = lakehouse("rebuild", table, "--approve", **environment(project))
    assert done.code == 75
    assert "is being written by pid " in done.line
    assert "(`lakehouse run --every 2s`" in done.line


def test_a_run_of_nothing(lakehouse: Command, spark: SparkSession, project: Settings) -> None:
    done = lakehouse("run", **environment(project))
    assert (done.code, done.out.count("holds")) == (0, 3)


def test_a_missing_topic(lakehouse: Command, spark: SparkSession, endpoint: Endpoint) -> None:
    urls = {"LAKEHOUSE_PULSAR__SERVICE_URL": endpoint.service_url, "LAKEHOUSE_PULSAR__ADMIN_URL": endpoint.admin_url}
    done = lakehouse("run", LAKEHOUSE_PULSAR__NAMESPACE="public/nowhere", LAKEHOUSE_RUN__RETRY_DELAY="1", **urls)
    assert done.code == 78
    assert "retry 1 of" not in done.err
    assert "public/nowhere/" in done.line
    assert "no such topic" in done.line
    assert "`lakehouse topics create`" in done.line
