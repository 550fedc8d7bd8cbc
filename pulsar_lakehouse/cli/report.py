"""What several commands print, and the note of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table as Grid
from rich.text import Text

from pulsar_lakehouse.terminal import Terminal, duration, moment, one_line

if TYPE_CHECKING:  # a command loads those of which it has some to print
    from pulsar_lakehouse.expectations.results import Result
    from pulsar_lakehouse.inspection.table_status import TableStatus
    from pulsar_lakehouse.jobs.retention import State
    from pulsar_lakehouse.jobs.streams import Outcome
    from pulsar_lakehouse.reconciliation import Reconciliation
    from pulsar_lakehouse.settings import Settings

OUT = Terminal()

say = OUT.say


def grid(
    columns: Sequence[str], rows: Iterable[Iterable[str | Text]], *, title: str | None = None, numbers: bool = False
) -> Grid:
    """A table of texts, which are folded rather than cut; with `numbers`, all columns but the first one have these."""
    made = Grid(title=title)
    for place, name in enumerate(columns):
        right = numbers and place > 0
        made.add_column(name, overflow="ellipsis" if numbers else "fold", justify="right" if right else "left")
    for row in rows:
        made.add_row(*row)
    return made


def note(lines: Iterable[object], settings: Settings) -> None:
    """Add lines to the note of the Airflow run, if Airflow runs this command."""
    _tell(settings, ({"note": one_line(str(line))} for line in lines))


def tell_tables(settings: Settings) -> None:
    """Tell Airflow, if it runs this command, what the tables hold."""
    if settings.run.outcome_file is not None:
        from pulsar_lakehouse.inspection.table_status import table_statuses  # late, as few commands need it

        held = table_statuses(settings)
        _tell(settings, ({"table": t.name, "rows": t.rows, "version": t.version, "lag": t.lag} for t in held))


def _tell(settings: Settings, outcome: Iterable[Mapping[str, object]]) -> None:
    if settings.run.outcome_file is not None:
        with settings.run.outcome_file.open("a") as file:
            file.writelines(f"{json.dumps(each)}\n" for each in outcome)


def outcomes(done: Iterable[Outcome], settings: Settings) -> None:
    """Print how many rows each stream has read, and note it with a line for each step."""
    done = list(done)
    for step, group in groupby(done, key=lambda each: each.name.partition(" ")[0]):
        read = ", ".join(f"{each.rows:,} rows ({each.name.partition(' ')[2]})" for each in group if each.rows)
        note([f"{step}: {read or 'no new rows'}"], settings)
    width = max((len(each.name) for each in done), default=0)
    for each in done:
        line = f" {each.name:<{max(width, 14)}} {each.rows:>11,} rows in {each.seconds:5.1f} s"
        OUT.print(Text.assemble(("✓", "green"), line), soft_wrap=True)


def quality(results: Sequence[Result]) -> None:
    """Print how many rules of each table pass, and what each of the others found."""
    tables = []
    for table, group in groupby(results, key=lambda result: result.table_name):
        evaluated = list(group)
        passed = sum(result.outcome == "passed" for result in evaluated)
        row = (table, f"{evaluated[0].table_rows:,}", evaluated[0].scope, f"{len(evaluated)}", f"{passed}")
        tables.append([Text(cell, "" if passed == len(evaluated) else "bold") for cell in row])
    OUT.print(grid(("table", "rows", "validated", "rules", "pass"), tables, numbers=True))
    for result in results:
        if result.outcome != "passed":
            what = "error" if result.outcome == "error" else str(result.severity)
            name = one_line(f"{result.table_name} {result.rule}: {result.observed}")
            mark, colour = ("✗", "red") if result.stops else ("!", "yellow")
            OUT.print(Text.assemble((f"{mark} {what:<8} ", colour), name), soft_wrap=True)


def reconciliation(reconciliations: Sequence[Reconciliation]) -> None:
    """Print the equation of each topic: landed = the sum of all that is accounted for."""
    rows = []
    for each in reconciliations:
        accounted = " + ".join(f"{count:,} {status}" for status, count in each.accounted.items())
        rows.append((each.topic, each.arrived, "=" if each.holds else "≠", accounted, verdict(each.holds)))
    columns = ("topic", "landed", "", "accounted for", "")
    OUT.print(grid(columns, rows, title="Reconciliation: where the landed messages are"))
    for line in filter(None, (each.of_snapshot for each in reconciliations)):
        say(line)


def verdict(holds: bool) -> Text:
    return Text("holds", "green") if holds else Text("does not hold", "red")


def tables(statuses: Iterable[TableStatus], freshness: Mapping[str, float]) -> Grid:
    """A row per table. `freshness` has the age in seconds of what has not reached a table of gold."""
    rows = []
    for each in statuses:
        lag = {None: "", 0: "up to date"}.get(each.lag, f"{each.lag} commits, {duration(each.lag_seconds or 0)}")
        behind = duration(freshness[each.name]) if each.name in freshness else ""
        size, changed = f"{each.size / 1e6:,.1f}", f"{age(each.ran_at)} ago"
        rows.append((each.name, f"{each.rows:,}", size, f"{each.files:,}", changed, lag, behind))
    made = grid(("table", "rows", "MB", "files", "changed", "lag", "behind topics"), rows, numbers=True)
    made.columns[0].no_wrap = True
    return made


def states(kept: Iterable[State]) -> Grid:
    rows = []
    for state in kept:
        times = ("" if at is None else f"{at:%Y-%m-%d %H:%M}" for at in (state.oldest, state.newest))
        rows.append((state.purpose, f"{state.rows:,}", f"{state.size / 1e6:,.2f}", *times, state.kept))
    return grid(("state", "rows", "MB", "oldest", "newest", "kept"), rows, numbers=True)


def rows(columns: Sequence[str], values: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print values of any type."""
    texts = ([one_line(cell(value)) for value in row] for row in values)
    OUT.print(grid([one_line(name) for name in columns], texts, title=title))


def cell(value: object) -> str:
    """A value as tables show it."""
    match value:
        case float():
            return f"{value:,.2f}"
        case datetime():
            return moment(value)
    return whole(value, inner=cell)


def whole(value: object, inner: Callable[[object], str] | None = None) -> str:
    """The whole value as text: bytes are decoded, structs and lists are JSON."""
    match value:
        case None:
            return ""
        case bytes():
            return value.decode(errors="replace")
        case dict() | list() | tuple():
            return json.dumps(value, default=inner or whole, ensure_ascii=False)
    return str(value)


def age(moment: datetime) -> str:
    return duration((datetime.now(UTC) - moment).total_seconds())
