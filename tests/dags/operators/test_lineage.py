"""The run of a task is the parent of the runs of its steps."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
from airflow.sdk import Context

from pulsar_lakehouse.dags.operators.lineage import parent_run

AT = datetime(2026, 1, 31, tzinfo=UTC)
PROVIDED = {
    "OPENLINEAGE_PARENT_ID": "default/pipeline.land/019c1159-7000-73df-99a4-b89d4eac0cc5",
    "OPENLINEAGE_ROOT_PARENT_ID": "default/pipeline/019c1159-7000-7d01-a5bc-68217a0a1122",
}


def parents(logical_date: datetime | None, try_number: int = 1) -> dict[str, str]:
    task = SimpleNamespace(dag_id="pipeline", task_id="land", try_number=try_number, map_index=-1)
    run = SimpleNamespace(logical_date=logical_date, run_after=AT, clear_number=0)
    return parent_run(cast(Context, {"ti": task, "dag_run": run}))


def test_the_ids_are_those_of_the_provider_for_openlineage(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `lineage_parent_id` and `lineage_root_parent_id` of release 2.20.3 return them."""
    monkeypatch.delenv("OPENLINEAGE_NAMESPACE", raising=False)
    assert parents(AT) == PROVIDED
    assert parents(None) == parents(AT)
    again = parents(AT, try_number=2)
    assert again["OPENLINEAGE_PARENT_ID"] != PROVIDED["OPENLINEAGE_PARENT_ID"]
    assert again["OPENLINEAGE_ROOT_PARENT_ID"] == PROVIDED["OPENLINEAGE_ROOT_PARENT_ID"]
