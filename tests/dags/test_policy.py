"""What every DAG must keep to."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from pulsar_lakehouse.dags.operators.tasks import Step, alert, alert_of_timeout
from tests.shop import SHOP, SQL_TABLES, WRITTEN

FILES = sorted((Path(__file__).parent.parent.parent / "pulsar_lakehouse" / "dags").glob("[a-z]*.py"))
IMPORT = """
import runpy, sys

for file in sys.argv[1:]:
    runpy.run_path(file)
print(*{name.partition(".")[0] for name in sys.modules})
"""
PRELOADED = """
import runpy, sys
from importlib import import_module
from pulsar_lakehouse.local.scheduler import NEEDED

for name in NEEDED:
    import_module(name)
loaded = set(sys.modules)
for file in sys.argv[1:]:
    runpy.run_path(file)
print(*{name for name in set(sys.modules) - loaded if name.startswith(("pulsar_lakehouse", "pyspark"))})
"""
SLOW = {"deltalake", "great_expectations", "numpy", "pandas", "pulsar", "pyarrow"}
"""Packages that take long to import. A DAG file would import them each time that Airflow parses it."""


@pytest.fixture(scope="module")
def dags() -> dict[str, DAG]:
    bag = DagBag(str(FILES[0].parent))
    assert bag.import_errors == {}
    return dict(bag.dags)


def test_each_file_is_one_dag_of_its_name(dags: dict[str, DAG]) -> None:
    assert sorted(dags) == [file.stem for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_policy(dags: dict[str, DAG], file: Path) -> None:
    dag = dags[file.stem]
    assert "When a" in (dag.doc_md or "")
    assert dag.tags
    assert not dag.catchup
    assert dag.max_active_runs
    assert dag.dagrun_timeout
    assert dag.on_failure_callback is alert_of_timeout
    for task in dag.tasks:
        assert task.owner == "lakehouse"
        assert (task.retries, task.retry_delay) == (5, timedelta(seconds=10))
        assert task.execution_timeout
        assert task.on_failure_callback == [alert]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_dag_is_thin(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 100


def run_types(dag: DAG) -> set[str]:
    allowed = dag.allowed_run_types or ()
    assert not isinstance(allowed, str)  # Airflow converts a single type to a set
    return {kind.value for kind in allowed}


def test_only_days_can_be_backfilled(dags: dict[str, DAG]) -> None:
    assert {name: run_types(dag) for name, dag in dags.items()} == {
        "maintenance": {"scheduled", "manual"},
        "pipeline": {"scheduled", "manual", "asset_triggered", "operator_triggered", "asset_materialization"},
        "reprocess": set(),
    }


def test_import_loads_nothing_slow_and_touches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT, *map(str, FILES)]
    loaded = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert "pyspark" in loaded
    assert SLOW & set(loaded) == set()
    assert list(tmp_path.iterdir()) == []


def test_each_step_of_a_run_is_a_box_and_each_table_an_asset(dags: dict[str, DAG]) -> None:
    pipeline = dags["pipeline"]
    assert {task.task_id: task.upstream_task_ids for task in pipeline.tasks} == {
        "news": set(),
        "land": {"news"},
        "merge": {"land"},
        "enrich": {"merge"},
        "reconcile": {"enrich"},
        "validate": {"reconcile"},
        "refresh": {"validate"},
        "publish": {"validate"},
    }
    assert sorted(asset.name for task in pipeline.tasks for asset in task.outlets) == sorted(
        [*WRITTEN, *(table.name for table in SQL_TABLES), *(f"pulsar.{topic}" for topic in SHOP.published)]
    )
    assert pipeline.max_active_runs == 1


def test_tables_follow_from_each_other(dags: dict[str, DAG]) -> None:
    """From what each box reads and writes, Airflow draws the graph of the assets."""
    boxes = {
        task.task_id: (sorted(asset.name for asset in task.inlets), sorted(asset.name for asset in task.outlets))
        for task in dags["pipeline"].tasks
    }
    assert boxes["land"] == (["pulsar.backlog"], ["bronze.items", "bronze.orders", "bronze.users"])
    assert boxes["merge"] == (["bronze.items", "bronze.users"], ["silver.items", "silver.users"])
    assert boxes["enrich"] == (["bronze.orders", "silver.items", "silver.users"], ["gold.enriched_orders"])
    assert boxes["refresh"] == (["gold.enriched_orders"], sorted(table.name for table in SQL_TABLES))


def test_a_step_that_is_skipped_keeps_none_below_it_from_running(dags: dict[str, DAG]) -> None:
    assert {task.trigger_rule for task in dags["pipeline"].tasks} == {"none_failed"}


def test_sql_tables_are_not_judged_before_their_refresh(dags: dict[str, DAG]) -> None:
    commands = {task.task_id: task.command for task in dags["pipeline"].tasks if isinstance(task, Step)}
    assert not {table.name for table in SQL_TABLES} & set(commands["validate"])
    assert commands["refresh"] == ["refresh", "--validate"]


def test_the_local_scheduler_has_loaded_what_tasks_would_import() -> None:
    imported = subprocess.run([sys.executable, "-c", PRELOADED, *FILES], check=True, capture_output=True, text=True)
    assert imported.stdout.split() == []
