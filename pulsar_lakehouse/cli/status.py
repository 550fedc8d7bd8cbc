"""`lakehouse status`: what is wrong, and then the numbers of topics, tables, quarantine and steps."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pulsar_lakehouse.cli import report, shapes
from pulsar_lakehouse.cli.shapes import AsJson
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.inspection.table_status import TableStatus
from pulsar_lakehouse.jobs.pipeline_status import FailedChecks, SourceState, Status, TopicState, status_of
from pulsar_lakehouse.jobs.problems import problems, warnings
from pulsar_lakehouse.jobs.retention import State, states
from pulsar_lakehouse.records import ReconciliationRecord, StepRecord
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.terminal import duration, one_line


def status_command(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks with --watch.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Show what is wrong, with what to do. Then the numbers of topics, tables, quarantine, steps and reconciliation."""
    settings = load_settings()
    if watch and as_json:
        raise ConfigurationError("--json can't be combined with --watch: ask again instead")
    if not watch:
        found = status_of(settings)
        if as_json:
            shapes.show(shape(settings, found))
        for part in () if as_json else parts(settings, found):
            report.OUT.print(part, soft_wrap=isinstance(part, Text))
        if found.unreadable:
            raise LakehouseError(found.unreadable)
        return
    now = Group(*parts(settings, status_of(settings)))
    with Live(now, console=report.OUT, screen=report.OUT.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(Group(*parts(settings, status_of(settings))), refresh=True)


def shape(settings: Settings, found: Status) -> shapes.Status:
    return shapes.Status(
        problems=list(problems(found)),
        warnings=list(warnings(found)),
        topics=[_topic(each) for each in found.topics],
        sources=[_source(each) for each in found.sources],
        tables=[_table(each, found.freshness) for each in found.tables],
        quarantine=list(_held(found)),
        rules=[shapes.Rules(**asdict(each)) for each in found.checks if each.rules],
        state=[_state(each) for each in states(settings)] if found.tables else [],
        steps=[_step(each) for each in found.steps],
        reconciliations=[
            shapes.Reconciled(topic=each.topic, holds=each.holds, other=each.other, at=_moment(each.at))
            for each in found.reconciliations
        ],
    )


def _source(each: SourceState) -> shapes.Source:
    last = each.last
    return shapes.Source(
        source=each.name,
        place=each.place,
        rows=last.rows if last else None,
        changes=last.changes if last else None,
        read_at=_moment(last.read_at) if last else None,
        problem=each.problem,
    )


def _topic(each: TopicState) -> shapes.Topic:
    numbers = each.status
    return shapes.Topic(
        topic=each.name,
        messages=numbers.messages if numbers else None,
        backlog=numbers.backlog if numbers else None,
        lag_seconds=numbers.lag_seconds if numbers else None,
        problem=each.problem,
        topics=[
            shapes.TopicPart(
                topic=part.name, messages=part.messages, backlog=part.backlog, lag_seconds=part.lag_seconds
            )
            for part in (numbers.parts if numbers else ())
        ],
    )


def _table(each: TableStatus, freshness: Mapping[str, float]) -> shapes.Table:
    return shapes.Table(
        table=each.name,
        rows=each.rows,
        version=each.version,
        bytes=each.size,
        files=each.files,
        changed_at=each.ran_at,
        lag_commits=each.lag,
        lag_seconds=each.lag_seconds,
        behind_topics_seconds=freshness.get(each.name),
    )


def _held(found: Status) -> Iterator[shapes.Held]:
    for each in found.waiting:
        yield shapes.Held(
            topic=each.topic,
            place="waiting",
            entity=each.entity,
            reason=each.reason,
            messages=each.rows,
            expired=each.expired,
            oldest_seconds=each.oldest_seconds,
        )
    counts: list[tuple[str, str, int, float | None]]
    counts = [(each.topic, "malformed", each.rows, each.oldest_seconds) for each in found.malformed]
    counts += [(topic, place, count, None) for (topic, place), count in found.held.items()]
    for topic, place, count, oldest in counts:
        if count:
            yield shapes.Held(
                topic=topic, place=place, entity="", reason="", messages=count, expired=0, oldest_seconds=oldest
            )


def _state(each: State) -> shapes.State:
    return shapes.State(
        purpose=each.purpose, rows=each.rows, bytes=each.size, oldest=each.oldest, newest=each.newest, kept=each.kept
    )


def _step(each: StepRecord) -> shapes.Step:
    return shapes.Step(
        step=each.step,
        rows=each.rows,
        batches=each.batches,
        seconds=each.seconds,
        retries=each.retries,
        failures=each.failures,
        last_batch_at=_moment(each.batch_at) if each.batch_at else None,
        failure=each.failure,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def parts(settings: Settings, found: Status) -> list[Text | Table]:
    """What is wrong, a line each, and then all numbers."""
    wrong = [Text(f"✗ {one_line(line)}", "red") for line in problems(found)]
    wrong += [Text(f"! {one_line(line)}", "yellow") for line in warnings(found)]
    parts: list[Text | Table] = [*(wrong or [Text("✓ nothing is wrong", "green")]), _topics(found.topics)]
    parts.append(_sources(found.sources))
    if found.tables:
        parts += [report.tables(found.tables, found.freshness), _quarantine(found), _rules(found.checks)]
        parts.append(report.states(states(settings)))
    elif not found.unreadable:
        parts.append(Text("Tables: none yet: `lakehouse run` makes them"))
    parts += [_steps(found.steps), _last_reconciled(found.reconciliations)]
    return [part for part in parts if isinstance(part, Text) or part.row_count]


def _topics(found: Iterable[TopicState]) -> Table:
    rows = []
    for each in found:
        if numbers := each.status:
            age = "unknown" if numbers.lag_seconds is None else duration(numbers.lag_seconds)
            oldest = age if numbers.backlog else ""
            rows.append((each.name, f"{numbers.messages:,}", f"{numbers.backlog:,}", oldest))
            rows += [(f"  {part.name}", f"{part.messages:,}", f"{part.backlog:,}", "") for part in numbers.parts]
    columns = ("topic", "messages since the broker started", "backlog, in batches", "oldest")
    return report.grid(columns, rows, numbers=True)


def _sources(found: Iterable[SourceState]) -> Table:
    rows = []
    for each in found:
        known = each.last and (f"{each.last.rows:,}", f"{each.last.changes:,}", _ago(each.last.read_at))
        rows.append((each.name, each.place, *(known or ("", "", "never"))))
    return report.grid(("source", "is", "rows", "of them changed", "last read"), rows)


def _quarantine(found: Status) -> Table:
    rows = []
    for each in found.waiting:
        waits = one_line(f"{each.topic} wait: {each.entity} {each.reason}")
        expired = f"{each.expired:,}" if each.expired else ""
        rows.append((waits, f"{each.rows:,}", expired, duration(each.oldest_seconds)))
    for messages in found.malformed:
        if messages.rows:
            rows.append((f"{messages.topic}: malformed", f"{messages.rows:,}", "", duration(messages.oldest_seconds)))
    rows += [(f"{topic}: {place}", f"{count:,}", "", "") for (topic, place), count in found.held.items() if count]
    return report.grid(("quarantine", "messages", "expired", "oldest"), rows, numbers=True)


def _rules(checks: Iterable[FailedChecks]) -> Table:
    rows = ((each.table, each.severity, one_line(", ".join(each.rules))) for each in checks if each.rules)
    return report.grid(("table", "severity", "rules that did not pass"), rows)


def _steps(records: Iterable[StepRecord]) -> Table:
    rows = []
    for each in records:
        numbers = (each.rows, each.batches, round(each.seconds), each.retries, each.failures)
        rows.append((each.step, *(f"{number:,}" for number in numbers), _ago(each.batch_at) if each.batch_at else ""))
    columns = ("step", "rows", "batches", "seconds", "retries", "failures", "last batch")
    return report.grid(columns, rows, numbers=True)


def _last_reconciled(records: Iterable[ReconciliationRecord]) -> Table:
    rows = ((each.topic, report.verdict(each.holds), _others(each), _ago(each.at)) for each in records)
    return report.grid(("reconciliation", "", "", "when"), rows, numbers=True)


def _others(record: ReconciliationRecord) -> str:
    return f"{record.other:,} of no kind" if record.other else ""


def _ago(at: float) -> str:
    return f"{report.age(_moment(at))} ago"
