"""`lakehouse demo`: the whole pipeline in one go, on its own broker and data."""

import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from cli import report
from domains.shop.workload import Workload
from jobs.steps import create_tables, landing, reconcile_all, run_all, run_landed, spark_for
from jobs.streams import catch_up
from lakehouse.delta.leases import write_lease
from lakehouse.delta.query import query
from lakehouse.delta.status import table_statuses
from lakehouse.local import broker
from lakehouse.pulsar.endpoint import Endpoint
from lakehouse.pulsar.produce import Message, produce
from lakehouse.pulsar.topic_admin import create_topics
from lakehouse.reconciliation import Reconciliation
from lakehouse.settings import SHIPPED, Pulsar, Settings
from lakehouse.spark.session import SHORT_RUN
from lakehouse.terminal import shown
from pipeline.loading import pipeline_of

DEFAULT_ORDERS = 20_000
"""More orders make the demo slower, and show nothing new."""
QUERIES = Path(__file__).parent.parent / "domains" / "shop" / "queries"


def run_demo(settings: Settings, *, orders: int) -> list[Reconciliation]:
    """Produce, land, merge, enrich, reconcile and query in `<home>/demo`, which is emptied first.

    The broker is always stopped at the end. Raises BusyError if another demo runs, or if a process still writes the
    tables of the last one.
    """
    started = time.monotonic()
    own, workload = demo_settings(settings), Workload(users=max(orders // 10, 1), orders=orders)
    written = pipeline_of(own).written
    with write_lease(settings, ["demo"]):
        with write_lease(own, written):  # don't delete tables that a process still writes
            broker.stop(own)
        shutil.rmtree(own.home, ignore_errors=True)
        try:
            broker.launch(own, keep_classes=True)
            with spark_for(own, writes=written) as spark:  # Spark and the broker start side by side
                reconciliations = _show_pipeline(spark, own, workload)
            broker.stop(own, keep_classes=True)
        finally:
            broker.stop(own)
    report.say(f"\nThe demo took {time.monotonic() - started:.0f} s.")
    _show_next(own, workload)
    return reconciliations


def demo_settings(settings: Settings) -> Settings:
    """The user's settings, with the shipped shop, all folders in `<home>/demo`, an own broker, and a quick Spark."""
    pulsar = Pulsar(memory=settings.pulsar.memory, partitions=settings.pulsar.partitions)
    spark = settings.spark.model_copy(update={"conf": SHORT_RUN | settings.spark.conf})
    places = {
        "declarations": SHIPPED,
        "home": settings.home / "demo",
        "warehouse": "",
        "checkpoints": "",
    }
    return settings.model_copy(update=places | {"pulsar": pulsar, "spark": spark})


def _show_pipeline(spark: SparkSession, settings: Settings, workload: Workload) -> list[Reconciliation]:
    topics = pipeline_of(settings).topics
    with ThreadPoolExecutor() as pool:
        tables = pool.submit(create_tables, spark, settings)  # while the broker starts and messages land
        endpoint = broker.start(settings)
        create_topics(topics, endpoint, settings)
        report.say("\n1. Items, users and orders arrive; some users are late", "bold")
        _produce(settings, endpoint, ((topic.name, workload.first(topic.name)) for topic in topics))
        report.outcomes(catch_up(settings, landing(spark, settings, topics)))
        tables.result()
    report.outcomes(run_landed(spark, settings))
    waited = _waiting(settings)
    report.say(f"{len(waited):,} orders wait in quarantine for a user or an item")
    report.say("\n2. The late users arrive, and changes: updates, deletes, merges, prices", "bold")
    _produce(settings, endpoint, ((topic.name, workload.late(topic.name)) for topic in topics))
    report.outcomes(run_all(spark, settings))
    waiting = _waiting(settings)
    report.say(f"{len(waited - waiting):,} orders came back by themselves")
    report.say(f"{len(waiting - waited):,} orders left gold: their user or item turned out to have been deleted before")
    report.say("\n3. What there is now", "bold")
    report.tables(table_statuses(settings))
    reconciliations = reconcile_all(spark, settings)
    report.reconciliation(reconciliations)
    _show_queries(settings)
    return reconciliations


def _produce(settings: Settings, endpoint: Endpoint, streams: Iterable[tuple[str, Iterable[Message]]]) -> None:
    by_name = {topic.name: topic for topic in pipeline_of(settings).topics}
    sent = produce([(by_name[name], messages) for name, messages in streams], endpoint, settings)
    report.say("Acknowledged: " + ", ".join(f"{count:,} {name}" for name, count in sent.items()))


def _waiting(settings: Settings) -> set[tuple[int, ...]]:
    """The keys of the waiting orders."""
    return set(query(settings, "SELECT invoice_id, line_item_id FROM quarantine.waiting_orders").fetchall())


def _show_queries(settings: Settings) -> None:
    for path in sorted(QUERIES.glob("*.sql")):
        title, _, statement = path.read_text().partition("\n")
        found = query(settings, statement)
        report.rows(found.columns, found.fetchall(), title=title.removeprefix("-- "))


def _show_next(settings: Settings, workload: Workload) -> None:
    home = shown(settings.home)
    report.say(
        f"""
What to try next, on what the demo has left in {home}:
  export LAKEHOUSE_HOME={home} PATH=$PWD/.venv/bin:$PATH
  lakehouse sql "SELECT reason, count(*) FROM quarantine.waiting_orders GROUP BY ALL"
  lakehouse sql "SELECT topic, reason, payload FROM quarantine.malformed LIMIT 5"
  lakehouse up && lakehouse status
  lakehouse produce --users {workload.users} --rate 1000/s --forever 2>/dev/null &      # and then, until Ctrl-C:
  lakehouse run --every 2s
  kill %1; lakehouse down                          # stops what still runs"""
    )
