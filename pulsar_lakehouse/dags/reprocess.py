"""## Recompute a day of facts

Recomputes a day of facts from bronze, and replaces what differs in one commit, while the pipeline keeps running. Once
this DAG is switched on, it does so each night for the day that has ended. For other days, use *Trigger*, **Backfill**:
it starts a run for each day. They run one after the other, as the pool `gold` has one slot: each takes gold's lease.

*Trigger* itself recomputes the day before, or the `day` that you give, for all tables or for one `table`. With
`dry_run`, the log says what would change, `gold.shadow_<facts>` has the rows, and nothing else is written.

**When a day fails**, the last line of its log says why. The day is unchanged, or was replaced as a whole. Clear the
task to retry it.
"""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from pulsar_lakehouse.dags.operators.tasks import DEFAULTS, GOLD_POOL, Step, alert_of_timeout, only_for_param
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings

ENRICHMENTS = pipeline_of(load_settings()).enrichments

# A run that was triggered by hand has an interval only if it was given a date.
DAY = (
    "{{ params.day or (data_interval_start if data_interval_start is defined"
    " else dag_run.run_after - macros.timedelta(1)) | ds }}"
)

with DAG(
    "reprocess",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=16,
    dagrun_timeout=timedelta(days=1),
    on_failure_callback=alert_of_timeout,
    default_args=DEFAULTS,
    tags=["gold"],
    params={
        "day": Param(None, type=["null", "string"], format="date", description="Default: the run's day, or yesterday."),
        "table": Param(
            "all", enum=["all", *(facts.gold_table for facts in ENRICHMENTS)], description="What to recompute."
        ),
        "dry_run": Param(False, type="boolean", description="Only say what would change."),
    },
    doc_md=__doc__,
) as dag:
    for facts in ENRICHMENTS:
        Step(
            task_id=f"recompute_{facts.topic.name}",
            command=[
                *("backfill", "--facts", facts.topic.name, "--from", DAY, "--to", DAY),
                "{{ '--dry-run' if params.dry_run else '' }}",
            ],
            reads=[facts.topic.bronze_table],
            writes=[facts.gold_table],
            pool=GOLD_POOL,
            pre_execute=only_for_param("table", "all", facts.gold_table),
        )
