"""What the commands print."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table as Grid
from rich.text import Text
from rich.tree import Tree

from pulsar_lakehouse.expectations.results import Result
from pulsar_lakehouse.gold.sql.refresh import Refreshed
from pulsar_lakehouse.inspection.table_status import TableStatus
from pulsar_lakehouse.jobs.forget import Found
from pulsar_lakehouse.jobs.lineage.flows import Flow
from pulsar_lakehouse.jobs.lineage.kept import LastRun
from pulsar_lakehouse.jobs.lineage.tracing import Source
from pulsar_lakehouse.jobs.maintenance import Maintained
from pulsar_lakehouse.jobs.pipeline_status import FailedChecks, Status, TopicState
from pulsar_lakehouse.jobs.planning import Change
from pulsar_lakehouse.jobs.problems import problems, warnings
from pulsar_lakehouse.jobs.retention import State
from pulsar_lakehouse.jobs.state_of_key import Part
from pulsar_lakehouse.jobs.streams import Outcome
from pulsar_lakehouse.jobs.trace import Event
from pulsar_lakehouse.pipeline.graph import Node
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import ReconciliationRecord, StepRecord
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.definitions import rebuild_command
from pulsar_lakehouse.terminal import Terminal, duration, one_line

OUT = Terminal()

QUOTED = 200
"""Longest quotation in characters, so that several fit in a note."""

say = OUT.say


def outcomes(done: Iterable[Outcome]) -> None:
    done = list(done)
    width = max((len(each.name) for each in done), default=0)
    for each in done:
        line = f" {each.name:<{max(width, 14)}} {each.rows:>11,} rows in {each.seconds:5.1f} s"
        OUT.print(Text.assemble(("✓", "green"), line), soft_wrap=True)


def refreshed(done: Iterable[Refreshed]) -> None:
    for each in done:
        changes = f"{each.inserted:,} inserted, {each.updated:,} updated, {each.deleted:,} deleted"
        say(f"{each.table}: {each.kind} ({each.reason}): {changes}")


def plan(nodes: Iterable[Node], *, title: str) -> None:
    grid = Grid("layer", "table", "made from", "how", title=title)
    for each in nodes:
        grid.add_row(each.layer, each.name, "\n".join(each.sources), each.how)
    for column in grid.columns:
        column.overflow = "fold"  # rather than cut names
    OUT.print(grid)


def lineage(nodes: Iterable[Node], runs: Mapping[str, tuple[Flow, LastRun | None]]) -> None:
    grid = Grid("table", "made from", "step", "last run")
    for node in nodes:
        flow, last = runs.get(node.name, (None, None))
        ended = Text(when_and_what(node.name, last), "red" if last.state == "FAIL" else "") if last else ""
        grid.add_row(node.name, "\n".join(node.sources), flow.step if flow else "", ended)
    for column in grid.columns:
        column.overflow = "fold"  # rather than cut names
    OUT.print(grid)


def when_and_what(name: str, last: LastRun) -> str:
    """When a step last ran, and how many rows of a table it wrote."""
    rows = last.written.get(name, last.read)
    counted = "" if rows is None else f", {rows:,} rows"
    how = {"COMPLETE": counted, "FAIL": ", failed", "ABORT": ", stopped", "START": ", has not ended"}[last.state]
    return f"{_age(last.at)} ago{how}"


def sources(found: Iterable[Source]) -> None:
    for each in found:
        OUT.print(_tree(each))


def _tree(source: Source) -> Tree:
    tree = Tree(Text.assemble(source.name, (f" = {source.sql}" if source.sql else "", "dim")))
    for each in source.sources:
        tree.children.append(_tree(each))
    return tree


def changes(found: Mapping[str, Sequence[Change]]) -> None:
    """Print what differs from each table that exists, and how to rebuild those for which that is needed."""
    if all(each.what == "new" for of_table in found.values() for each in of_table) and all(found.values()):
        say("No table exists yet: `lakehouse run` makes them, and `lakehouse refresh` those that SQL declares")
        return
    grid = Grid("table", "what differs", "what happens", title="Compared with the tables that exist")
    for each in (each for of_table in found.values() for each in of_table):
        grid.add_row(each.table, each.what, each.then)
    for column in grid.columns:
        column.overflow = "fold"
    if grid.row_count:
        OUT.print(grid)
    unchanged = [name for name, of_table in found.items() if not of_table]
    say(f"Unchanged: {', '.join(unchanged) or 'none'}")
    rebuilt = {each.rebuild for of_table in found.values() for each in of_table if each.rebuild}
    if rebuilt:
        say(f"`{rebuild_command(sorted(rebuilt))}` makes these again, and what depends on them")


def reconciliation(reconciliations: Iterable[Reconciliation]) -> None:
    """Print the equation of each topic: landed = the sum of all that is accounted for."""
    grid = Grid("topic", "landed", "", "accounted for", "", title="Reconciliation: where the landed messages are")
    for each in reconciliations:
        sign, verdict = ("=", Text("holds", "green")) if each.holds else ("≠", Text("does not hold", "red"))
        accounted = " + ".join(f"{count:,} {status}" for status, count in each.accounted.items())
        grid.add_row(each.topic, f"{each.landed:,}", sign, accounted, verdict)
    OUT.print(grid)


def note(lines: Iterable[object], settings: Settings) -> None:
    """Add lines to the note of the Airflow run, if Airflow runs this command."""
    if settings.run.note_file is not None:
        with settings.run.note_file.open("a") as file:
            file.writelines(f"{one_line(str(line))}\n" for line in lines)


def quoted(text: str) -> str:
    """The beginning of a text that may contain data, as Markdown code: Airflow renders links in notes."""
    return "`" + text[:QUOTED].replace("`", "'") + "`"


def status(found: Status, kept: Iterable[State]) -> list[Text | Grid]:
    """What is wrong, a line each, and then all numbers."""
    wrong = [Text(f"✗ {one_line(line)}", "red") for line in problems(found)]
    wrong += [Text(f"! {one_line(line)}", "yellow") for line in warnings(found)]
    parts: list[Text | Grid] = [*(wrong or [Text("✓ nothing is wrong", "green")]), topics(found.topics)]
    if found.tables:
        parts += [tables(found.tables, found.freshness), _quarantine(found), _rules(found.checks), states(kept)]
    elif not found.unreadable:
        parts.append(Text("Tables: none yet: `lakehouse run` makes them"))
    parts += [_steps(found.steps), _last_reconciled(found.reconciliations)]
    return [part for part in parts if isinstance(part, Text) or part.row_count]


def show(parts: Iterable[Text | Grid]) -> None:
    for part in parts:
        OUT.print(part, soft_wrap=isinstance(part, Text))


def topics(found: Iterable[TopicState]) -> Grid:
    grid = _grid("topic", "messages since the broker started", "backlog, in batches", "oldest")
    for each in found:
        if each.status:
            numbers = each.status
            age = "unknown" if numbers.lag_seconds is None else duration(numbers.lag_seconds)
            oldest = age if numbers.backlog else ""
            grid.add_row(each.name, f"{numbers.messages:,}", f"{numbers.backlog:,}", oldest)
    return grid


def tables(statuses: Iterable[TableStatus], freshness: Mapping[str, float]) -> Grid:
    """A row per table. `freshness` has the age in seconds of what has not reached a table of gold."""
    grid = _grid("table", "rows", "MB", "files", "changed", "lag", "behind topics")
    grid.columns[0].no_wrap = True
    for each in statuses:
        lag = {None: "", 0: "up to date"}.get(each.lag, f"{each.lag} commits, {duration(each.lag_seconds or 0)}")
        behind = duration(freshness[each.name]) if each.name in freshness else ""
        numbers = (f"{each.rows:,}", f"{each.size / 1e6:,.1f}", f"{each.files:,}", f"{_age(each.ran_at)} ago")
        grid.add_row(each.name, *numbers, lag, behind)
    return grid


def _quarantine(found: Status) -> Grid:
    grid = _grid("quarantine", "messages", "expired", "oldest")
    for each in found.waiting:
        waits = f"{each.topic} wait: {each.entity} {each.reason}"
        expired = f"{each.expired:,}" if each.expired else ""
        grid.add_row(one_line(waits), f"{each.rows:,}", expired, duration(each.oldest_seconds))
    for messages in found.malformed:
        if messages.rows:
            grid.add_row(f"{messages.topic}: malformed", f"{messages.rows:,}", "", duration(messages.oldest_seconds))
    for (topic, place), count in found.held.items():
        if count:
            grid.add_row(f"{topic}: {place}", f"{count:,}", "", "")
    return grid


def _rules(checks: Iterable[FailedChecks]) -> Grid:
    grid = Grid("table", "severity", "rules that did not pass")
    for each in checks:
        if each.rules:
            grid.add_row(each.table, each.severity, one_line(", ".join(each.rules)))
    return grid


def _steps(records: Iterable[StepRecord]) -> Grid:
    grid = _grid("step", "rows", "batches", "seconds", "retries", "failures", "last batch")
    for each in records:
        work = (f"{each.rows:,}", f"{each.batches:,}", f"{each.seconds:,.0f}")
        last = f"{_age(datetime.fromtimestamp(each.batch_at, UTC))} ago" if each.batch_at else ""
        grid.add_row(each.step, *work, f"{each.retries:,}", f"{each.failures:,}", last)
    return grid


def _last_reconciled(records: Iterable[ReconciliationRecord]) -> Grid:
    grid = _grid("reconciliation", "", "when")
    for each in records:
        verdict = Text("holds", "green") if each.holds else Text("does not hold", "red")
        grid.add_row(each.topic, verdict, f"{_age(datetime.fromtimestamp(each.at, UTC))} ago")
    return grid


def states(kept: Iterable[State]) -> Grid:
    grid = _grid("state", "rows", "MB", "oldest", "newest", "kept")
    for state in kept:
        times = ("" if at is None else f"{at:%Y-%m-%d %H:%M}" for at in (state.oldest, state.newest))
        grid.add_row(state.purpose, f"{state.rows:,}", f"{state.size / 1e6:,.2f}", *times, state.kept)
    return grid


def parts(found: Iterable[Part]) -> None:
    """Print tables with titles, in one line if they have a single column or no rows."""
    for part in found:
        if len(part.columns) > 1 and part.rows:
            rows(part.columns, part.rows, title=part.title)
        else:
            say(f"{part.title}: {', '.join(str(row[0]) for row in part.rows) or 'none'}")


def events(found: Sequence[Event]) -> None:
    """Print a line per event: when, the table and its version, the position of the message, and what happened."""
    tables = [each.table if each.version is None else f"{each.table} v{each.version}" for each in found]
    width, place = max(map(len, tables)), max(len(each.message) for each in found)
    for each, table in zip(found, tables, strict=True):
        what = one_line(each.what)
        line = f"{each.at:%Y-%m-%d %H:%M:%S}  {table:<{width}}  {each.message:<{place}}  {what}"
        OUT.print(line, soft_wrap=True)


def maintenance(done: Iterable[Maintained]) -> None:
    for each in done:
        compacted = f"not compacted: {each.busy}" if each.busy else f"{each.compacted} small ones compacted"
        told = f"failed: {each.failed}" if each.failed else f"{each.removed} old files removed, {compacted}"
        say(f"{each.table:<32} {told}")


def person(found: Found) -> None:
    """Print the keys of a person, and how many rows each table would lose."""
    if not found.tables:
        say("The tables hold nothing of this key")
        return
    keys = (f"{entity}:{key}" for entity, of_entity in found.keys.items() for key in sorted(of_entity))
    say(f"Keys: {', '.join(keys)}")
    grid = _grid("table", "rows that would go")
    for name, count in sorted(found.tables.items()):
        grid.add_row(name, f"{count:,}")
    OUT.print(grid)
    if found.snapshots:
        say(f"Snapshots that would be dropped, as a restore would bring the person back: {', '.join(found.snapshots)}")
    say("Tables declared in SQL, topics and Postgres would follow. Nothing was erased: add --approve")


def certificate(given: Mapping[str, Any], path: Path) -> None:
    """Print the certificate of an erasure, and where it is."""
    grid = Grid("what", "where", title=f"Erasure {given['request']}, completed at {given['completed_at']}")
    grid.add_row("rows erased", "\n".join(f"{name}: {rows:,}" for name, rows in given["rows"].items()))
    recomputed = (*given["recomputed"], *(f"{name} in Postgres" for name in given["postgres"]))
    for what, where in {
        "recomputed": recomputed,
        "tombstones sent, and compaction requested": given["compacted_topics"],
    }.items():
        if where:
            grid.add_row(what, "\n".join(where))
    older = given["older_versions"]
    grid.add_row("older versions", f"leave at {older['leave_at']}, by {older['by']}")
    grid.add_row("malformed messages that can be anybody's", f"{given['unreadable_messages']:,}")
    for line in given["beyond"]:
        grid.add_row("left to you", line)
    for column in grid.columns:
        column.overflow = "fold"
    OUT.print(grid)
    say(f"Certificate: {path}")


def quality(results: Sequence[Result]) -> None:
    """Print how many rules of each table pass, and what each of the others found."""
    grid = _grid("table", "rows", "validated", "rules", "pass")
    for table, group in groupby(results, key=lambda result: result.table_name):
        evaluated = list(group)
        passed = sum(result.outcome == "passed" for result in evaluated)
        numbers = (f"{evaluated[0].table_rows:,}", evaluated[0].scope, f"{len(evaluated)}", f"{passed}")
        grid.add_row(table, *numbers, style=None if passed == len(evaluated) else "bold")
    OUT.print(grid)
    for result in results:
        if result.outcome != "passed":
            what = "error" if result.outcome == "error" else str(result.severity)
            name = one_line(f"{result.table_name} {result.rule}: {result.observed}")
            mark, colour = ("✗", "red") if result.stops else ("!", "yellow")
            OUT.print(Text.assemble((f"{mark} {what:<8} ", colour), name), soft_wrap=True)


def rows(columns: Sequence[str], values: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    grid = Grid(title=title)
    for name in columns:
        grid.add_column(one_line(name), overflow="fold")
    for row in values:
        grid.add_row(*(one_line(_cell(value)) for value in row))
    OUT.print(grid)


def as_csv(columns: Sequence[str], values: Iterable[Sequence[object]]) -> None:
    """Print exact values; on a terminal, with control characters escaped."""
    shown = one_line if OUT.file.isatty() else str
    writer = csv.writer(OUT.file, lineterminator="\n")
    writer.writerow(map(shown, columns))
    writer.writerows([shown(_whole(value)) for value in row] for row in values)


def _grid(first: str, *numbers: str) -> Grid:
    grid = Grid(first)
    for column in numbers:
        grid.add_column(column, justify="right")
    return grid


def _cell(value: object) -> str:
    match value:
        case float():
            return f"{value:,.2f}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
    return _whole(value, inner=_cell)


def _whole(value: object, inner: Callable[[object], str] | None = None) -> str:
    """The whole value as text: bytes are decoded, structs and lists are JSON."""
    match value:
        case None:
            return ""
        case bytes():
            return value.decode(errors="replace")
        case dict() | list() | tuple():
            return json.dumps(value, default=inner or _whole, ensure_ascii=False)
    return str(value)


def _age(moment: datetime) -> str:
    return duration((datetime.now(UTC) - moment).total_seconds())
