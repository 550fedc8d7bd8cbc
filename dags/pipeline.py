"""## From topics to gold

Lands what is new in each topic, merges changelogs into silver, enriches facts into gold, reconciles, validates the
tables, and refreshes the tables declared in SQL. It runs every five minutes, and at once when messages arrive after a
quiet time. A run that would find nothing new ends after its first task, except once an hour. A run that is started by
hand does everything.

**When a task fails**, the last line of its log says why. Airflow has retried it five times, unless a retry could not
help; *quality* is retried only while another process writes its tables.

* *no broker is running*, *no answer from the broker*: start the broker; messages sent meanwhile wait in it.
* *is being written by …*: the line names another process that writes the table: wait for it, or stop it.
* *no such topic*: run `lakehouse topics create`.
* *`lakehouse land … --accept-loss` writes that down and goes on*: the broker deleted messages before they landed: see
  *Messages lost before landing* in `docs/operations.md`.
* *refresh* fails with a file and a line: the table is unchanged; fix the file, see `docs/sql-tables.md`.
* *reconcile* fails: the log and the note of the run name topic, difference and positions. Nothing is repaired
  automatically: see `docs/operations.md`.
* *quality* fails: the log lists the rules that do not pass, and the task links to the report: see `docs/quality.md`.

While *reconcile* or *quality* fails, nothing is refreshed: the SQL tables and their topics stay as they were.

Then **clear the failed task**: it continues where it stopped. Nothing is lost or repeated, however often you do that.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, AssetOrTimeSchedule, CronDataIntervalTimetable, TaskGroup

from dags.operators.backlog import BACKLOG
from dags.operators.tasks import DEFAULTS, GOLD_POOL, Step, Validation, alert_of_timeout, has_news
from lakehouse.settings import load_settings
from pipeline.loading import pipeline_of

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
):
    declared = pipeline_of(load_settings())
    news = ShortCircuitOperator(task_id="news", python_callable=has_news)
    with TaskGroup("land"):
        landed = {
            topic.name: Step(task_id=topic.name, command=["land", topic.name], writes=[topic.bronze_table])
            for topic in declared.topics
        }
    with TaskGroup("merge"):
        merged = {
            entity.name: Step(
                task_id=entity.name,
                command=["merge", entity.name],
                reads=[entity.topic.bronze_table],
                writes=[entity.table.name],
            )
            for entity in declared.entities
        }
    with TaskGroup("enrich"):
        enriched = {
            facts.topic.name: Step(
                task_id=facts.topic.name,
                command=["enrich", facts.topic.name],
                reads=[facts.topic.bronze_table, *(lookup.table for lookup in facts.lookups)],
                writes=[facts.gold_table],
                pool=GOLD_POOL,
            )
            for facts in declared.enrichments
        }
    with TaskGroup("refresh"):
        refreshed = {
            table.name: Step(
                task_id=table.name.partition(".")[2],
                command=["refresh", table.name],
                reads=table.sources,
                writes=[table.name],
            )
            for table in declared.sql_tables
        }
    reconcile = Step(task_id="reconcile", command=["reconcile"], pool=GOLD_POOL)
    quality = Validation(task_id="quality", command=["validate", "--new"], pool=GOLD_POOL)

    news >> list(landed.values())
    for entity in declared.entities:
        landed[entity.topic.name] >> merged[entity.name]
    for facts in declared.enrichments:
        [landed[facts.topic.name], *(merged[lookup.entity] for lookup in facts.lookups)] >> enriched[facts.topic.name]
    [*merged.values(), *enriched.values()] >> reconcile >> quality
    for table in declared.sql_tables:
        ([refreshed[source] for source in table.sources if source in refreshed] or [quality]) >> refreshed[table.name]
