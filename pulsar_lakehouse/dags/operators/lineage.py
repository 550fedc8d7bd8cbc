"""Names the run of an Airflow task as the parent of the runs of its steps, for OpenLineage.

The ids are those that Airflow's provider for OpenLineage gives, so both fit together if it is installed.
"""

import os

from airflow.sdk import Context

from pulsar_lakehouse.jobs.lineage.backend import is_disabled


def parent_run(context: Context) -> dict[str, str]:
    """The environment variables that name the runs of the task and of its DAG to a command."""
    if is_disabled():
        return {}
    from openlineage.client.constants import DEFAULT_NAMESPACE_NAME  # takes half a second
    from openlineage.client.uuid import generate_static_uuid

    task, run = context["ti"], context["dag_run"]
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE_NAME
    when = run.logical_date or run.run_after

    def named(job: str, *more: int | None) -> str:
        identity = ".".join(map(str, (namespace, job, *more)))
        return f"{namespace}/{job}/{generate_static_uuid(when, identity.encode())}"

    return {
        "OPENLINEAGE_PARENT_ID": named(f"{task.dag_id}.{task.task_id}", task.try_number, task.map_index),
        "OPENLINEAGE_ROOT_PARENT_ID": named(task.dag_id, run.clear_number),
    }
