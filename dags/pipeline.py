"""
## From topics to gold

Lands what is new in each topic, merges changelogs into silver, enriches facts into gold, and proves that nothing was
lost: every five minutes, and as soon as messages wait in the broker. A run with nothing new takes a minute and writes
nothing.

**When a task fails**, its log ends with one line that says why. It has been tried six times.

* *no broker is running*, *no answer from the broker*: start the broker; what was sent meanwhile waits in it.
* *is being written by …*: another process, which the line names, holds the table: wait for it, or stop it.
* *no such topic*: run `lakehouse topics create`.
* *reconcile* fails: the log names topic, difference and positions. Nothing is repaired by itself: see
  `docs/operations.md`.

Then **clear the failed task**: it goes on where it was. Nothing is lost, and nothing comes twice, whatever is cleared
and however often.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, AssetOrTimeSchedule, CronDataIntervalTimetable, TaskGroup

from jobs.backlog import BACKLOG
from jobs.pipeline import ENRICHMENTS, ENTITIES, TOPICS
from jobs.tasks import DEFAULTS, GOLD_POOL, Step

with DAG(
    "pipeline",
    # The clock also serves an event that comes during a run, which by itself would be forgotten.
    schedule=AssetOrTimeSchedule(timetable=CronDataIntervalTimetable("*/5 * * * *", timezone="UTC"), assets=[BACKLOG]),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=2),
    default_args=DEFAULTS,
    tags=["bronze", "silver", "gold"],
    doc_md=__doc__,
):
    with TaskGroup("land"):
        landed = {
            topic.name: Step(task_id=topic.name, command=["land", topic.name], writes=[topic.bronze_table])
            for topic in TOPICS
        }
    with TaskGroup("merge"):
        merged = {
            entity.name: Step(
                task_id=entity.name,
                command=["merge", entity.name],
                reads=[entity.topic.bronze_table],
                writes=[entity.table.name],
            )
            for entity in ENTITIES
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
            for facts in ENRICHMENTS
        }
    reconcile = Step(task_id="reconcile", command=["reconcile"], pool=GOLD_POOL)

    for entity in ENTITIES:
        landed[entity.topic.name] >> merged[entity.name]
    for facts in ENRICHMENTS:
        [landed[facts.topic.name], *(merged[lookup.entity] for lookup in facts.lookups)] >> enriched[facts.topic.name]
    [*merged.values(), *enriched.values()] >> reconcile
