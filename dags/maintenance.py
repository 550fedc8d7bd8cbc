"""
## Maintenance, each night

*compact* removes files that no version of the last week needs, and makes few large ones of many small ones. *purge*
removes rows that were deleted long ago. *clean_logs* removes logs of tasks older than 30 days.

A table that is being written is compacted and purged the next night; its old files go all the same. A step of the
pipeline that finds its table being kept up waits for that.

**When a task fails**, its log says why, by table. The tables are as good as before, only slower: clear the task when
there is time. A full disk is the most likely reason: see `docs/operations.md`.
"""

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, CronTriggerTimetable, conf, task

from dags.operators.tasks import DEFAULTS, GOLD_POOL, Step, alert_of_timeout
from declarations.pipeline import ENTITIES

with DAG(
    "maintenance",
    # Not in a minute in which the pipeline starts. Without a start date, its first run is that of the next night.
    schedule=CronTriggerTimetable("33 2 * * *", timezone="UTC"),
    catchup=False,
    allowed_run_types=["scheduled", "manual"],
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=4),
    on_failure_callback=alert_of_timeout,
    default_args=DEFAULTS,
    tags=["bronze", "silver", "gold"],
    doc_md=__doc__,
):

    @task(pool=GOLD_POOL)
    def compact() -> None:
        from cli import report
        from jobs.maintenance import maintain
        from lakehouse.settings import load_settings

        report.maintenance(maintain(load_settings()))

    @task
    def clean_logs() -> int:
        from jobs.maintenance import clean_logs

        return clean_logs(Path(conf.get("logging", "base_log_folder")), keep=timedelta(days=30))

    purge = Step(
        task_id="purge",
        command=["purge"],
        writes=[entity.table.name for entity in ENTITIES],
        yields=True,
        pool=GOLD_POOL,
    )

    compact() >> purge
    clean_logs()
