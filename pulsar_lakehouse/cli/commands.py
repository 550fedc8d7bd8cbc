"""The `lakehouse` command: its subcommands and its exit codes."""

import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NoReturn

import typer

from pulsar_lakehouse.bronze.accepted_losses import accepted_losses
from pulsar_lakehouse.bronze.losses import LOSSES, refusal
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.airflow import app as airflow_app
from pulsar_lakehouse.cli.backfill import backfill_command
from pulsar_lakehouse.cli.demo import DEFAULT_DOMAIN, DEFAULT_SIZE, run_demo
from pulsar_lakehouse.cli.extras import require_extra
from pulsar_lakehouse.cli.forget import forget_command
from pulsar_lakehouse.cli.init import init_command
from pulsar_lakehouse.cli.lineage import lineage_command
from pulsar_lakehouse.cli.metrics import metrics_command
from pulsar_lakehouse.cli.plan import plan_command
from pulsar_lakehouse.cli.produce import produce_command
from pulsar_lakehouse.cli.quality import NEEDED, validate_command, validate_tables
from pulsar_lakehouse.cli.quarantine import app as quarantine_app
from pulsar_lakehouse.cli.rebuild import rebuild_command
from pulsar_lakehouse.cli.refresh import refresh_command, refresh_tables
from pulsar_lakehouse.cli.send import send_command
from pulsar_lakehouse.cli.serve import serve_command
from pulsar_lakehouse.cli.snapshot import app as snapshot_app
from pulsar_lakehouse.cli.state import state_command
from pulsar_lakehouse.cli.status import status_command
from pulsar_lakehouse.cli.trace import trace_command
from pulsar_lakehouse.errors import (
    BrokerError,
    ConfigurationError,
    DeclarationsError,
    LakehouseError,
    PermanentError,
    ReconciliationError,
)
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.jobs.metrics import Pulse, serve_metrics
from pulsar_lakehouse.jobs.steps import (
    enriching,
    landing,
    look_around,
    merging,
    open_lake,
    open_lake_between_rounds,
    open_lake_with,
    publishing,
    reconcile_all,
    require,
    run_all,
    steps_of_facts,
    steps_of_state,
)
from pulsar_lakehouse.jobs.streams import catch_up, keep_up
from pulsar_lakehouse.leases.holders import Kind
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.pulsar.topic_admin import create_published, create_topics
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import keep_reconciliations
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.purge import purge as purge_entity
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent
from pulsar_lakehouse.spark.session import end_of_spark, stop_spark
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.terminal import one_line, visible

app = typer.Typer(
    name="lakehouse",
    help="Turn Pulsar topics into trusted Delta tables: land, merge, enrich, and reconcile what landed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
topics_app = typer.Typer(help="Create the topics of the pipeline.", no_args_is_help=True)
# `--help` shows these panels in the order of their first commands.
PROJECT, BROKER, PIPELINE, DATA, AIRFLOW = "Project", "Broker and topics", "Pipeline", "Tables", "Airflow"


app.command("init", rich_help_panel=PROJECT)(init_command)


@app.command(rich_help_panel=BROKER)
def up() -> None:
    """Start the embedded broker, a standalone Pulsar, in the background."""
    found = broker.start(load_settings())
    report.say(f"The broker is up: {found.service_url}, admin {found.admin_url}")


@app.command(rich_help_panel=BROKER)
def down() -> None:
    """Stop the embedded broker. Topics and tables are kept."""
    stopped = broker.stop(load_settings())
    report.say("The broker is down." if stopped else "No embedded broker was running.")


@topics_app.command("create")
def create() -> None:
    """Create the declared topics. Those that exist keep their messages; their schema and retention are updated."""
    settings = load_settings()
    pipeline, endpoint = pipeline_of(settings), broker.healthy_endpoint(settings)
    create_topics(pipeline.topics, endpoint, settings)
    create_published(pipeline.published_topics, endpoint, settings)
    names = [*(topic.name for topic in pipeline.topics), *pipeline.published_topics]
    report.say(f"Topics in {settings.pulsar.namespace}: {', '.join(names)}")


@app.command(rich_help_panel=PIPELINE)
def land(
    topics: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue after lost messages, and record them in bronze.losses.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Land topics that a warehouse which is gone has landed.")
    ] = False,
) -> None:
    """Land what is new in topics in their bronze tables."""
    settings = load_settings()
    chosen = _chosen(topics, {topic.name: topic for topic in pipeline_of(settings).topics})
    broker.healthy_endpoint(settings)  # fail before Spark starts
    with open_lake(settings, writes=[topic.bronze_table for topic in chosen]) as lake:
        streams = landing(lake, chosen, accept_loss=accept_loss, take_over=take_over)
        report.outcomes(catch_up(settings, streams))


@app.command(rich_help_panel=PIPELINE)
def merge(entities: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None) -> None:
    """Merge what is new in bronze changelogs into their silver tables."""
    settings = load_settings()
    chosen = _chosen(entities, {entity.name: entity for entity in pipeline_of(settings).entities})
    with open_lake(settings, writes=[entity.table.name for entity in chosen]) as lake:
        require(lake, [entity.topic.bronze_table for entity in chosen], made_by="land")
        report.outcomes(catch_up(settings, merging(lake, chosen)))


@app.command(rich_help_panel=PIPELINE)
def enrich(facts: Annotated[list[str] | None, typer.Argument(help="Default: all.")] = None) -> None:
    """Join what is new in bronze facts with silver into gold, and retry facts whose missing state has arrived."""
    settings = load_settings()
    chosen = _chosen(facts, {facts.topic.name: facts for facts in pipeline_of(settings).enrichments})
    with open_lake(settings, writes=[enrichment.gold_table for enrichment in chosen]) as lake:
        require(lake, [enrichment.topic.bronze_table for enrichment in chosen], made_by="land")
        require(lake, [table for each in chosen for table in each.state_tables], made_by="merge")
        report.outcomes(catch_up(settings, enriching(lake, chosen)))


@app.command(rich_help_panel=PIPELINE)
def run(
    every: Annotated[str, typer.Option(help="Keep running, with one round per interval, such as 2s or 1m.")] = "",
    through_sql: Annotated[
        bool, typer.Option("--through-sql", help="Then validate new rows, and refresh the tables declared in SQL.")
    ] = False,
) -> None:
    """Land, merge and enrich what is new, then reconcile. With --every, keep running without reconciling."""
    if every and through_sql:
        raise ConfigurationError("--through-sql can't be combined with --every: run `lakehouse refresh` beside it")
    seconds = _seconds(every) if every else None
    settings = load_settings()
    pipeline = pipeline_of(settings)
    sql_tables = pipeline.sql_tables if through_sql else ()
    if through_sql:
        require_extra(*NEEDED)
    broker.healthy_endpoint(settings)
    written = [*pipeline.written, *(table.name for table in sql_tables)]
    kind: Kind = "rounds" if every else "step"
    with write_lease(settings, written, kind=kind) as lease, open_lake_with(settings, lease) as lake:
        if seconds is None:
            report.outcomes(run_all(lake))
            _reconcile(lake)
            if through_sql:
                validate_tables(lake, only_new=True)
                refresh_tables(lake, sql_tables)
        else:
            pulse, look = Pulse(), partial(look_around, lake)
            if settings.metrics.port is not None:
                serve_metrics(settings, pulse)
            state, steps = steps_of_state(lake), steps_of_facts(lake)
            keep_up(settings, steps, state=state, every=seconds, look=look, lease=lease, beat=pulse.beat)


@app.command("publish", rich_help_panel=PIPELINE)
def publish_gold(
    every: Annotated[str, typer.Option(help="Keep running, with one round per interval, such as 2s or 1m.")] = "",
) -> None:
    """Publish gold to its topics as keyed messages: all rows first, then each change exactly once."""
    seconds = _seconds(every) if every else None
    settings = load_settings()
    published = pipeline_of(settings).published
    tables = [enrichment.gold_table for enrichment in published.values()]
    with write_lease(settings, published) as lease, open_lake_with(settings, lease) as lake:
        require(lake, tables, made_by="run")
        streams = publishing(lake, published.values())
        if seconds is None:
            report.outcomes(catch_up(settings, streams))
        else:
            look = partial(lake.versions, tables)
            keep_up(settings, [streams], every=seconds, look=look, lease=lease)


@app.command(rich_help_panel=PIPELINE)
def reconcile() -> None:
    """Check that each landed message is in exactly one place; if not, print the difference and exit with 1."""
    settings = load_settings()
    written = pipeline_of(settings).written
    with open_lake_between_rounds(settings, written) as lake:
        require(lake, written, made_by="run")
        _reconcile(lake)


def _reconcile(lake: Lake) -> None:
    """Print and note where the landed messages are, and compare with the broker.

    Raises ReconciliationError if a message is in no table or in two, or was lost before it landed.
    """
    reconciliations = reconcile_all(lake)
    keep_reconciliations(lake.settings, reconciliations)
    report.reconciliation(reconciliations)
    report.note(reconciliations, lake.settings)
    _refuse([*_broken(reconciliations), *_compare_with_broker(lake.settings)])


def _compare_with_broker(settings: Settings) -> list[str]:
    """Print the accepted losses; returns the others, which only the broker knows."""
    lost: list[str | None] = []
    try:
        for topic, (count, entries) in accepted_losses(settings).items():
            report.say(f"{topic}: {count:,} losses of at least {entries:,} entries were accepted: see {LOSSES.name}")
        endpoint = broker.endpoint(settings)
        for declared in pipeline_of(settings).topics:
            lost.append(refusal(settings, declared, endpoint))
    except (BrokerError, ConfigurationError) as error:
        report.say(f"Not compared with the broker: {error}")
    return [line for line in lost if line]


@app.command(rich_help_panel=DATA)
def purge() -> None:
    """Remove keys that were deleted longer ago than their entity keeps them."""
    settings = load_settings()
    pipeline = pipeline_of(settings)
    tables = [entity.table.name for entity in pipeline.entities]
    with open_lake_between_rounds(settings, tables, kind="maintenance") as lake:
        require(lake, tables, made_by="run")
        purged = {each.name: purge_entity(lake, each, merges=_merges(pipeline, each)) for each in pipeline.entities}
    report.say("Purged: " + ", ".join(f"{count:,} {name}" for name, count in purged.items()))


def _merges(pipeline: Pipeline, entity: Entity) -> set[str]:
    """The SQL, in lookups of the entity, for the key into which a row was merged."""
    lookups = [lookup for each in pipeline.enrichments for lookup in each.lookups if lookup.entity == entity]
    return {lookup.merged_into for lookup in lookups if lookup.merged_into is not None}


@app.command("maintain", rich_help_panel=DATA)
def maintain_tables() -> None:
    """Remove files that no table version of the last week needs, then compact the tables, even while a stream runs."""
    report.maintenance(maintain(load_settings()))


# A statement can begin with a comment, which looks like an option.
@app.command(rich_help_panel=DATA, context_settings={"ignore_unknown_options": True})
def sql(
    statement: Annotated[str, typer.Argument(help='Such as "SELECT * FROM gold.enriched_orders LIMIT 5".')],
    csv: Annotated[bool, typer.Option("--csv", help="Print whole values, as CSV with a header.")] = False,
) -> None:
    """Run SQL over the tables, without starting Spark."""
    found = query(load_settings(), statement)
    if csv:
        wrapped = {"blob", "struct", "list", "array", "map"}  # `as_csv` formats these, not DuckDB
        values = (f"#{n}" if kind.id in wrapped else f"#{n}::VARCHAR" for n, kind in enumerate(found.types, 1))
        report.as_csv(found.columns, found.project(", ".join(values)).fetchall())
    else:
        report.rows(found.columns, found.fetchall())


@app.command(rich_help_panel=PIPELINE)
def demo(
    domain: Annotated[str, typer.Option(help="The domain whose data and tables to show.")] = DEFAULT_DOMAIN,
    size: Annotated[int, typer.Option(min=1_000, help="About how many messages to produce.")] = DEFAULT_SIZE,
) -> None:
    """Run the whole pipeline of a domain on its own broker and fresh data, and show the results."""
    _refuse(_broken(run_demo(load_settings(), domain=domain, size=size)))


app.command("status", rich_help_panel=DATA)(status_command)
app.command("lineage", rich_help_panel=DATA)(lineage_command)
app.command("metrics", rich_help_panel=DATA)(metrics_command)
app.command("backfill", rich_help_panel=DATA)(backfill_command)
app.command("forget", rich_help_panel=DATA)(forget_command)
app.command("rebuild", rich_help_panel=DATA)(rebuild_command)
app.command("plan", rich_help_panel=PIPELINE)(plan_command)
app.command("produce", rich_help_panel=BROKER)(produce_command)
app.command("refresh", rich_help_panel=PIPELINE)(refresh_command)
app.command("send", rich_help_panel=BROKER)(send_command)
app.command("serve", rich_help_panel=DATA)(serve_command)
app.command("state", rich_help_panel=DATA)(state_command)
app.command("trace", rich_help_panel=DATA)(trace_command)
app.command("validate", rich_help_panel=PIPELINE)(validate_command)
app.add_typer(topics_app, name="topics", rich_help_panel=BROKER)
app.add_typer(quarantine_app, name="quarantine", rich_help_panel=DATA)
app.add_typer(snapshot_app, name="snapshot", rich_help_panel=DATA)
app.add_typer(airflow_app, name="airflow", rich_help_panel=AIRFLOW)


def main() -> NoReturn:
    """Run the command. A failure prints one line on standard error.

    The exit code is 0 for success, 2 for wrong usage, 75 if another process is writing the tables, 78 if a retry would
    fail in the same way, 130 after an interrupt, and 1 for other failures.
    """
    logging.disable()  # py4j would report each call that an interrupt or the end of the JVM cuts off
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    code = 1
    try:
        app()
    except SystemExit as end:  # typer exits with 0, 2 after a usage error, or 130 after KeyboardInterrupt
        code = end.code if isinstance(end.code, int) else 0
    except LakehouseError as error:
        code = error.exit_code
        _complain(*([ended] if (ended := _end_of_spark()) else _lines(error)))
    except Exception as error:  # the exit code of a JVM that has ended may come a moment later
        code = PermanentError.exit_code if is_permanent(error) else 1
        _complain(_end_of_spark(within=2) or f"{cause_of(error)}{_log_traceback()}")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        stop_spark(keep_classes=code == 0)
        sys.stdout.flush()
        os._exit(code)  # don't wait for threads that wait for the JVM


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _end_of_spark(within: float = 0) -> str | None:
    with suppress(LakehouseError):  # if the settings can't be loaded, Spark was not started
        return end_of_spark(load_settings(), within=within)
    return None


def _lines(error: LakehouseError) -> Sequence[str]:
    return error.mistakes if isinstance(error, DeclarationsError) else [str(error)]


def _complain(*lines: str) -> None:
    for line in lines:
        CONSOLE.say(one_line(f"lakehouse: {line}"), "red")


def _log_traceback() -> str:
    """Log the stack trace; returns a hint for the error line, or nothing if the log can't be written."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # an Airflow task: its output is its log
        CONSOLE.say(traceback.format_exc())
    try:
        path = load_settings().home / "logs" / "lakehouse.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as log:
            log.write(visible(traceback.format_exc()))
    except (OSError, LakehouseError):
        return ""
    return f" (details: {path})"


def _broken(reconciliations: list[Reconciliation]) -> list[str]:
    broken = [reconciliation for reconciliation in reconciliations if not reconciliation.holds]
    return [
        f"{reconciliation.topic}: {'; '.join(reconciliation.problems) or reconciliation.difference}"
        for reconciliation in broken
    ]


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ReconciliationError(". ".join(problems))


def _chosen(names: list[str] | None, known: dict[str, Any]) -> list[Any]:
    for name in names or ():
        if name not in known:
            raise ConfigurationError(f"{name}: not declared; there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not found:
        raise ConfigurationError(f"--every {text}: must be a number with ms, s, m or h, such as 2s")
    return float(found[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[found[2]]
