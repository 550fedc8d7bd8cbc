"""## From topics to gold

Each box is a step, and a `lakehouse` command with its own log:

* *news* looks whether anything is new. If not, the run ends there.
* *land* lands what is new in each topic, *merge* merges changelogs into silver, *enrich* joins facts into gold.
* *reconcile* checks that no message is lost, *validate* that the tables hold what they must.
* *refresh* brings the tables declared in SQL up to date, and validates them. *publish* sends gold to its topics.

A step that finds nothing new is skipped, and those below it go on. While a step fails, none below it starts: SQL tables
and topics stay as they were. The pipeline runs every five minutes, and at once when messages arrive after a quiet time.
A run that is started by hand does everything, and so does a box that is cleared, with those below it.

**When a task fails**, the error in its log says why. Airflow has retried it five times, unless a retry could not help.

* *no broker is running*, *no answer from the broker*: start the broker; messages sent meanwhile wait in it.
* *is being written by …*: the line names another process that writes the table: wait for it, or stop it.
* *no such topic*: run `lakehouse topics create`.
* *`lakehouse land … --accept-loss` writes that down and goes on*: the broker deleted messages before they landed: see
  *Messages lost before landing* in `docs/operations.md`.
* A topic, a difference and positions: a message is in no table, or in two. Nothing is repaired automatically: see
  `docs/operations.md`.
* *new rows would have NULL there*: a declaration has lost a column; declare it as before, or see *Changes* in
  `docs/changes.md`. The other tables of this step are up to date, and the steps after it wait.
* *rows fail a check whose mode is fail*: nothing of them is written; correct the state or the check, see
  *A check ends a step* in `docs/quality.md`.
* *critical rules do not pass*: the log lists the rules, and *validate* links to the report: see `docs/quality.md`.
* A file and a line: a table declared in SQL could not be refreshed, and is unchanged; fix the file, see
  `docs/sql-tables.md`.

Then **clear the failed task**: it continues where it stopped. Nothing is lost or repeated, however often you do that.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, AssetOrTimeSchedule, CronDataIntervalTimetable

from pulsar_lakehouse.dags.operators.backlog import BACKLOG
from pulsar_lakehouse.dags.operators.news import has_news
from pulsar_lakehouse.dags.operators.tasks import DEFAULTS, GOLD_POOL, Step, Validate, alert_of_timeout
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings

with DAG(
    "pipeline",
    # The schedule serves producers that never pause: their backlog is never empty, so there is no event. An event
    # during a run is kept until that run ends.
    schedule=AssetOrTimeSchedule(timetable=CronDataIntervalTimetable("*/5 * * * *", timezone="UTC"), assets=[BACKLOG]),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # No backfill: a run takes everything available, whatever its date.
    allowed_run_types=["scheduled", "manual", "asset_triggered", "operator_triggered", "asset_materialization"],  # type: ignore[list-item]
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=2),
    on_failure_callback=alert_of_timeout,
    # A step that has nothing to do is skipped, and those below it may have something to do all the same.
    default_args=DEFAULTS | {"trigger_rule": "none_failed", "execution_timeout": timedelta(hours=1)},
    tags=["bronze", "silver", "gold"],
    doc_md=__doc__,
) as dag:
    declared = pipeline_of(load_settings())
    bronze = [topic.bronze_table for topic in declared.bronze]
    silver = [entity.table.name for entity in declared.entities]
    gold = [facts.gold_table for facts in declared.enrichments]

    news = ShortCircuitOperator(task_id="news", python_callable=has_news)
    land = Step(task_id="land", command=["land"], reads=[BACKLOG], writes=bronze)
    changelogs = [entity.topic.bronze_table for entity in declared.entities]
    merge = Step(task_id="merge", command=["merge"], reads=changelogs, writes=silver)
    read = [table for table in (*bronze, *silver) if table not in changelogs]
    enrich = Step(task_id="enrich", command=["enrich"], reads=read, writes=gold, pool=GOLD_POOL)
    reconcile = Step(task_id="reconcile", command=["reconcile"], pool=GOLD_POOL)
    # Those of SQL tables are judged once these are refreshed.
    judged = [suite.table for suite in declared.suites]
    validate = Validate(task_id="validate", command=["validate", "--new", *judged], pool=GOLD_POOL)

    news >> land >> merge >> enrich >> reconcile >> validate

    if declared.sql_tables:
        made = [table.name for table in declared.sql_tables]
        validate >> Step(
            task_id="refresh",
            command=["refresh", "--validate"],
            reads=sorted({source for table in declared.sql_tables for source in table.sources} - {*made}),
            writes=made,
            pool=GOLD_POOL,
        )
    if declared.published:
        validate >> Step(
            task_id="publish",
            command=["publish"],
            reads=[facts.gold_table for facts in declared.published.values()],
            writes=[f"pulsar.{topic}" for topic in declared.published],
            yields=True,
            pool=GOLD_POOL,
        )
