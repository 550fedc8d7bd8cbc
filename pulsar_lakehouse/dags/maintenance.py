"""## Maintenance, each night

*maintain* removes files that no table version of the last week needs, and rewrites many small files to few large ones.
*purge* removes keys that were deleted long ago. *clean_logs* removes task logs that are older than 30 days.

A table that is being written is compacted when its writer pauses, or the next night; its old files are removed now.
*purge* needs tables that nobody is writing. A pipeline step waits while its table is being maintained.

**When a task fails**, its log says why for each table. The tables are still correct, only slower: clear the task when
there is time. The most likely reason is a full disk: see `docs/operations.md`.
"""

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, CronTriggerTimetable, conf, task

from pulsar_lakehouse.dags.operators.tasks import DEFAULTS, GOLD_POOL, Step, alert_of_timeout
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings

with DAG(
    "maintenance",
    # Not in a minute in which the pipeline starts. Without a start date, the first run is the next night.
    schedule=CronTriggerTimetable("33 2 * * *", timezone="UTC"),
    catchup=False,
    allowed_run_types=["scheduled", "manual"],  # type: ignore[list-item]  # their enum is private
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=4),
    on_failure_callback=alert_of_timeout,
    default_args=DEFAULTS,
    tags=["bronze", "silver", "gold"],
    doc_md=__doc__,
) as dag:

    @task
    def clean_logs() -> int:
        from pulsar_lakehouse.jobs.maintenance import clean_logs

        return clean_logs(Path(conf.get("logging", "base_log_folder")), keep=timedelta(days=30))

    maintain = Step(task_id="maintain", command=["maintain"], pool=GOLD_POOL)
    purge = Step(
        task_id="purge",
        command=["purge"],
        writes=[entity.table.name for entity in pipeline_of(load_settings()).entities],
        yields=True,
        pool=GOLD_POOL,
    )

    maintain >> purge
    clean_logs()
