"""`lakehouse demo`: the whole pipeline of a domain in one go, on its own broker and data."""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.reconcile import refuse_broken
from pulsar_lakehouse.cli.refresh import show_refreshed
from pulsar_lakehouse.domains import DOMAINS, Workload, workload_of
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.delivery import refreshing
from pulsar_lakehouse.jobs.pipeline_status import status_of
from pulsar_lakehouse.jobs.steps import create_tables, open_lake, reconcile_all, run_all
from pulsar_lakehouse.leases.leases import home_lock, write_lease
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message, produce
from pulsar_lakehouse.pulsar.topic_admin import create_published, create_topics
from pulsar_lakehouse.pulsar.topic_names import by_name
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import keep_reconciliations
from pulsar_lakehouse.settings import DECLARATIONS, Pulsar, Settings, load_settings
from pulsar_lakehouse.spark.session import for_short_run
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.terminal import shown

DEFAULT_DOMAIN = "shop"
DEFAULT_SIZE = 20_000
"""More messages make the demo slower, and show nothing new."""

Keys = set[tuple[object, ...]]


def demo_command(
    domain: Annotated[str, typer.Option(help="The domain whose data and tables to show.")] = DEFAULT_DOMAIN,
    size: Annotated[int, typer.Option(min=1_000, help="About how many messages to produce.")] = DEFAULT_SIZE,
) -> None:
    """Run the whole pipeline of a domain on its own broker and fresh data, and show the results."""
    settings = load_settings()
    if domain not in DOMAINS:
        raise ConfigurationError(f"--domain {domain}: no such domain; there are {', '.join(DOMAINS)}")
    started = time.monotonic()
    own, workload = demo_settings(settings, domain), workload_of(domain).of(size)
    pipeline = pipeline_of(own)
    written = [*pipeline.written, *(table.name for table in pipeline.sql_tables)]
    with home_lock(settings, "demo"):
        with write_lease(own, written):  # don't delete tables that a process still writes
            broker.stop(own)
        shutil.rmtree(own.home, ignore_errors=True)
        try:
            broker.launch(own, keep_classes=True)
            with open_lake(own, writes=written) as lake:  # Spark and the broker start side by side
                found = _show_pipeline(lake, pipeline, workload)
            broker.stop(own, keep_classes=True)
        finally:
            broker.stop(own)
    report.say(f"\nThe demo took {time.monotonic() - started:.0f} s.")
    _show_next(own, size)
    refuse_broken(*found)


def demo_settings(settings: Settings, domain: str = DEFAULT_DOMAIN) -> Settings:
    """The user's settings, with a domain, all folders in `<home>/demo/<domain>`, an own broker, and a quick Spark."""
    pulsar = Pulsar(memory=settings.pulsar.memory, partitions=settings.pulsar.partitions)
    places = {
        "declarations": DOMAINS[domain] / DECLARATIONS,
        "home": settings.home / "demo" / domain,
        "warehouse": "",
        "parameters": {},
        "checkpoints": "",
    }
    return for_short_run(settings.model_copy(update=places | {"pulsar": pulsar}))


def _show_pipeline(lake: Lake, pipeline: Pipeline, workload: Workload) -> tuple[list[Reconciliation], list[str]]:
    """Returns where the messages are, and what is not as expected."""
    report.say(f"\n1. {workload.FIRST}", "bold")
    endpoint = _send_first(lake, pipeline, workload)
    report.outcomes(run_all(lake), lake.settings)
    before = [_places(lake.settings, facts) for facts in pipeline.enrichments]
    for facts, (_, waited) in zip(pipeline.enrichments, before, strict=True):
        report.say(f"{len(waited):,} {facts.topic.name} wait in quarantine for their {_states(facts)}")
    show_refreshed(refreshing(lake, pipeline.sql_tables), lake.settings)
    report.say(f"\n2. {workload.LATE}", "bold")
    _produce(lake.settings, endpoint, workload.late)
    report.outcomes(run_all(lake), lake.settings)
    for facts, (held, waited) in zip(pipeline.enrichments, before, strict=True):
        _show_moves(lake.settings, facts, held, waited)
    show_refreshed(refreshing(lake, pipeline.sql_tables), lake.settings)
    report.say("\n3. What there is now", "bold")
    found = status_of(lake.settings)
    report.OUT.print(report.tables(found.tables, found.freshness))
    reconciliations = reconcile_all(lake)
    keep_reconciliations(lake.settings, reconciliations)
    report.reconciliation(reconciliations)
    different = _show_expected(lake.settings, workload)
    _show_queries(lake.settings)
    return reconciliations, different


def _send_first(lake: Lake, pipeline: Pipeline, workload: Workload) -> Endpoint:
    """Create topics and tables, and send the first phase."""
    with ThreadPoolExecutor() as pool:
        tables = pool.submit(create_tables, lake)  # while the broker starts
        endpoint = broker.start(lake.settings)
        create_topics(pipeline.topics, endpoint, lake.settings)
        create_published(pipeline.published_topics, endpoint, lake.settings)
        _produce(lake.settings, endpoint, workload.first)
        tables.result()
    return endpoint


def _show_moves(settings: Settings, facts: Enrichment, held: Keys, waited: Keys) -> None:
    """Say how many facts have come to gold, and left it, since gold `held` and others `waited`."""
    holds, _ = _places(settings, facts)
    name, left = facts.topic.name, len(held - holds)
    report.say(f"{len(waited & holds):,} {name} came back by themselves")
    report.say(f"{left:,} {name} left gold: their {_states(facts)} turned out to have been deleted before")


def _produce(settings: Settings, endpoint: Endpoint, phase: Callable[[str], Iterator[Message]]) -> None:
    topics = by_name(pipeline_of(settings).topics)
    sent = produce([(topic, phase(name)) for name, topic in topics.items()], endpoint, settings)
    report.say("Acknowledged: " + ", ".join(f"{count:,} {name}" for name, count in sent.items()))


def _places(settings: Settings, facts: Enrichment) -> tuple[Keys, Keys]:
    """The keys of the facts in gold, and of those that wait."""
    keys = ", ".join(facts.keys)
    tables = (facts.gold_table, facts.waiting.name)
    gold, waiting = (set(query(settings, f"SELECT {keys} FROM {table}").fetchall()) for table in tables)
    return gold, waiting


def _states(facts: Enrichment) -> str:
    return " or ".join(join.name for join in facts.joins if join.required)


def _show_expected(settings: Settings, workload: Workload) -> list[str]:
    """Print whether tables have the rows that are known without the pipeline; returns a line for each that has not."""
    lines, different = [], []
    for what, sql, rows in workload.expected():
        found = Counter(query(settings, sql).fetchall())
        lacks, has = (Counter(rows) - found).total(), (found - Counter(rows)).total()
        lines.append((what, f"{len(rows):,}", report.verdict(lacks == has == 0)))
        different += [f"{what}: {lacks:,} rows are missing, and {has:,} are others"] if lacks or has else []
    if lines:
        report.OUT.print(report.grid(("rows", "number", ""), lines, title="What must be there"))
    return different


def _show_queries(settings: Settings) -> None:
    for path in sorted((settings.declarations.parent / "queries").glob("*.sql")):
        title, _, statement = path.read_text().partition("\n")
        found = query(settings, statement)
        report.rows(found.columns, found.fetchall(), title=title.removeprefix("-- "))


def _show_next(settings: Settings, size: int) -> None:
    home = shown(settings.home)
    report.say(
        f"""
What to try next, on what the demo has left in {home}:
  export LAKEHOUSE_DECLARATIONS={shown(settings.declarations)} LAKEHOUSE_HOME={home} PATH=$PWD/.venv/bin:$PATH
  lakehouse plan
  lakehouse sql "SELECT topic, reason, payload FROM quarantine.malformed LIMIT 5"
  lakehouse up && lakehouse status
  lakehouse produce --size {size} --rate 1000/s --forever 2>/dev/null &      # some of it malformed; then, until Ctrl-C:
  lakehouse run --every 2s
  kill %1; lakehouse down                          # stops what still runs"""
    )
