"""## From topics to gold

*run* lands what is new in each topic, merges changelogs into silver, enriches facts into gold, reconciles, validates
the tables, and brings the tables declared in SQL up to date. The pipeline runs every five minutes, and at once when
messages arrive after a quiet time. A run that would find nothing new ends after *news*, except once an hour. A run that
is started by hand does everything.

**When a task fails**, the last line of its log says why. Airflow has retried it five times, unless a retry could not
help.

* *no broker is running*, *no answer from the broker*: start the broker; messages sent meanwhile wait in it.
* *is being written by …*: the line names another process that writes the table: wait for it, or stop it.
* *no such topic*: run `lakehouse topics create`.
* *`lakehouse land … --accept-loss` writes that down and goes on*: the broker deleted messages before they landed: see
  *Messages lost before landing* in `docs/operations.md`.
* A topic, a difference and positions: a message is in no table, or in two. Nothing is repaired automatically: see
  `docs/operations.md`.
* *rows fail a check whose mode is fail*: nothing of them is written; correct the state or the check, see
  *A check ends a step* in `docs/quality.md`.
* *critical rules do not pass*: the log lists the rules, and the task links to the report: see `docs/quality.md`.
* A file and a line: a table declared in SQL could not be refreshed, and is unchanged; fix the file, see
  `docs/sql-tables.md`.

While what comes before fails, no SQL table is refreshed: they and their topics stay as they were.

Then **clear the failed task**: it continues where it stopped. Nothing is lost or repeated, however often you do that.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, AssetOrTimeSchedule, CronDataIntervalTimetable

from pulsar_lakehouse.dags.operators.backlog import BACKLOG
from pulsar_lakehouse.dags.operators.tasks import DEFAULTS, GOLD_POOL, Run, alert_of_timeout, has_news
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings

with DAG(
    "pipeline",
    # The schedule serves producers that never pause: their backlog is never empty, so there is no event. An event
    # during a run is kept until that run ends.
    schedule=AssetOrTimeSchedule(timetable=CronDataIntervalTimetable("*/5 * * * *", timezone="UTC"), assets=[BACKLOG]),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # All but a backfill: a run takes everything available, whatever its date.
    allowed_run_types=["scheduled", "manual", "asset_triggered", "operator_triggered", "asset_materialization"],  # type: ignore[list-item]
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=2),
    on_failure_callback=alert_of_timeout,
    default_args=DEFAULTS,
    tags=["bronze", "silver", "gold"],
    doc_md=__doc__,
) as dag:
    declared = pipeline_of(load_settings())
    news = ShortCircuitOperator(task_id="news", python_callable=has_news)
    run = Run(
        task_id="run",
        command=["run", "--through-sql"],
        writes=[*declared.written, *(table.name for table in declared.sql_tables)],
        pool=GOLD_POOL,
        execution_timeout=timedelta(hours=1),
    )

    news >> run
