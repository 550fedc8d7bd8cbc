"""Airflow's scheduler, with all that tasks import. It forks their processes, so none of them has to import it again."""

import sys
from importlib import import_module

from airflow.__main__ import main

NEEDED = (
    "airflow.dag_processing.dagbag",
    "airflow.providers.standard.operators.python",
    "airflow.sdk.execution_time.task_runner",
    "pulsar_lakehouse.dags.operators.backlog",
    "pulsar_lakehouse.dags.operators.news",
    "pulsar_lakehouse.dags.operators.tasks",
    "pulsar_lakehouse.pipeline.loading",
)
"""What the DAGs import, and what a task needs to read them."""

if __name__ == "__main__":
    for name in NEEDED:
        import_module(name)
    sys.argv[1:1] = ["scheduler"]
    main()  # type: ignore[no-untyped-call]
