"""What the views of the page show: each makes its HTML from what `lakehouse status`, `lineage` and others read."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pulsar_lakehouse.inspection.row_counts import rows_of_commits
from pulsar_lakehouse.inspection.table_status import TableStatus
from pulsar_lakehouse.jobs.lineage.kept import LastRun
from pulsar_lakehouse.jobs.pipeline_status import Status, TopicState
from pulsar_lakehouse.jobs.problems import LATE, problems, warnings
from pulsar_lakehouse.page.html import Child, Markup, Number, ago, badge, grid, section, sparkline, tag
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.graph import Note, picture
from pulsar_lakehouse.records import ReconciliationRecord
from pulsar_lakehouse.terminal import duration

COMMITS = 30
"""The commits of a table of which a sparkline shows the rows."""
ENDS = {"COMPLETE": "good", "FAIL": "bad", "ABORT": "warn", "START": "idle"}
"""How the states of a run look."""

WHAT = "What is made from what"

Commits = dict[str, list[tuple[datetime, int]]]


def commits_of(status: Status) -> Commits:
    """The rows of the last commits of each table."""
    return {name: rows_of_commits(table, COMMITS) for name, table in status.stored.items()}


def overview(pipeline: Pipeline, status: Status, commits: Commits) -> Child:
    wrong = [("bad", line) for line in problems(status)] + [("warn", line) for line in warnings(status)]
    lines = [tag("li", badge(kind, line)) for kind, line in wrong or [("good", "Nothing is wrong")]]
    topics = grid(
        "Topics",
        ("topic", "state", "backlog", "oldest", "landed", "last landed", "messages by commit"),
        _topics(pipeline, status, commits),
    )
    gold = grid(
        "Tables of gold",
        ("table", "behind topics", "rows", "changed", "rows by commit"),
        _gold(status, commits),
        "There is no table of gold yet: `lakehouse run` makes them.",
    )
    return [
        tag("section", tag("h2", "What is wrong"), tag("ul", lines, class_="problems"), aria_live="polite"),
        section("Topics", topics),
        *([section("Sources", _sources(status, commits))] if status.sources else []),
        section("Gold", gold),
        section("Reconciliation", _reconciliation(status)),
        section("Steps", _steps(status)),
    ]


def _topics(pipeline: Pipeline, status: Status, commits: Commits) -> Iterable[Sequence[Child]]:
    told = {each.name: each for each in status.topics}
    tables = {each.name: each for each in status.tables}
    for topic in pipeline.topics:
        state, table = told.get(topic.name), tables.get(topic.bronze_table)
        numbers = state.status if state else None
        lag = numbers.lag_seconds if numbers and numbers.backlog else None
        yield (
            tag("strong", topic.name),
            _state_of(state),
            numbers.backlog if numbers else Number("unknown"),
            "" if lag is None else duration(lag),
            status.landed.get(topic.name, 0),
            ago(table.ran_at) if table and table.rows else "",
            sparkline(commits.get(topic.bronze_table, ()), "commits"),
        )


def _sources(status: Status, commits: Commits) -> Child:
    rows = (
        (
            tag("strong", each.name),
            badge("bad", "can't land") if each.problem else badge("good" if each.last else "idle", each.place),
            each.last.rows if each.last else Number("unknown"),
            ago(datetime.fromtimestamp(each.last.read_at, UTC)) if each.last else "",
            sparkline(commits.get(f"bronze.{each.name}", ()), "commits"),
        )
        for each in status.sources
    )
    return grid("Sources", ("source", "state", "rows", "last read", "changes by commit"), rows)


def _state_of(topic: TopicState | None) -> Markup:
    if topic is None or (topic.status is None and not topic.problem):
        return badge("idle", "unknown")
    if topic.problem:
        return badge("bad", "can't land")
    lag = topic.status.lag_seconds if topic.status else None
    if lag is not None and lag > LATE:
        return badge("bad", "late")
    return badge("good", "up to date") if topic.status and not topic.status.backlog else badge("warn", "to land")


def _gold(status: Status, commits: Commits) -> Iterable[Sequence[Child]]:
    for each in status.tables:
        if each.name in status.freshness or (each.name.startswith("gold.") and each.lag is not None):
            behind = status.freshness.get(each.name, each.lag_seconds or 0)
            look = "bad" if behind > LATE and each.name in status.streams else "good" if behind < LATE else "warn"
            told = badge(look, duration(behind) if behind else "up to date")
            shown = sparkline(commits.get(each.name, ()), "commits")
            yield tag("strong", each.name), told, each.rows, ago(each.ran_at), shown


def _reconciliation(status: Status) -> Markup:
    rows = (
        (tag("strong", each.topic), _verdict(each), each.difference, ago(each.at)) for each in status.reconciliations
    )
    columns = ("topic", "each landed message is in one place", "difference", "when")
    return grid("Reconciliation", columns, rows, "Nothing was reconciled yet: `lakehouse reconcile` does it.")


def _verdict(done: ReconciliationRecord) -> Markup:
    if not done.holds:
        return badge("bad", f"does not hold: {'; '.join(done.problems)}")
    return badge("good", f"holds; {done.other:,} are of no kind" if done.other else "holds")


def _steps(status: Status) -> Markup:
    rows = (
        (
            tag("strong", each.step),
            badge("bad", each.failure)
            if each.failure
            else badge("warn", each.retry)
            if each.retry
            else badge("good", "done"),
            each.rows,
            each.batches,
            Number(duration(each.seconds)),
            each.retries,
            each.failures,
            ago(each.batch_at) if each.batch_at else "",
        )
        for each in status.steps
    )
    columns = ("step", "last run", "rows", "batches", "took", "retries", "failures", "last batch")
    return grid("Steps", columns, rows, "No step has run yet: `lakehouse run` does it.")


def tables(pipeline: Pipeline, status: Status, commits: Commits, runs: Mapping[str, LastRun]) -> Child:
    """The graph of all tables, and their numbers. `runs` are the last ones, by what they write."""
    drawn = Markup(picture(pipeline, _notes(pipeline, status, runs), styled=False))
    columns = ("table", "rows", "MB", "files", "changed", "lag", "behind topics", "last run", "rows by commit")
    rows = (_table(each, status, runs.get(each.name), commits) for each in status.tables)
    return [
        section(WHAT, tag("div", drawn, class_="scroll graph", tabindex=0, role="region", aria_label=WHAT)),
        section("Tables", grid("Tables", columns, rows, "There are none yet: `lakehouse run` makes them.")),
    ]


def _notes(pipeline: Pipeline, status: Status, runs: Mapping[str, LastRun]) -> dict[str, Note]:
    """What the boxes of the graph say: how much a table has, and when it was last written, or what waits in a topic."""
    notes = {}
    for each in status.tables:
        run = runs.get(each.name)
        when = duration(time.time() - (run.at if run else each.ran_at).timestamp())
        how = "failed" if run and run.state == "FAIL" else "stopped" if run and run.state == "ABORT" else ""
        notes[each.name] = Note(f"{each.rows:,} rows, {how} {when} ago".replace(",  ", ", "), is_bad=how == "failed")
    for source in status.sources:
        read = f"read {duration(time.time() - source.last.read_at)} ago" if source.last else "never read"
        notes[source.place] = Note(read, is_bad=bool(source.problem))
    told = {each.name: each for each in status.topics}
    for topic in pipeline.topics:
        if (state := told.get(topic.name)) and state.status:
            backlogs = {each.name: each.backlog for each in state.status.parts}
            for name, origin in zip(topic.own_names, topic.origins, strict=True):
                waiting = backlogs.get(name) if isinstance(topic.topic, tuple) else state.status.backlog
                is_bad = name in state.left_out if state.left_out else bool(state.problem)
                notes[origin] = Note("unknown" if waiting is None else f"{waiting:,} to land", is_bad=is_bad)
    return notes


def _table(each: TableStatus, status: Status, run: LastRun | None, commits: Commits) -> Sequence[Child]:
    commits_behind = "1 commit" if each.lag == 1 else f"{each.lag} commits"
    lag = {None: "", 0: "up to date"}.get(each.lag, f"{commits_behind}, {duration(each.lag_seconds or 0)}")
    behind = status.freshness.get(each.name)
    return (
        tag("strong", each.name),
        each.rows,
        Number(f"{each.size / 1e6:,.1f}"),
        each.files,
        ago(each.ran_at),
        lag,
        "" if behind is None else duration(behind),
        _told(each.name, run) if run else "",
        sparkline(commits.get(each.name, ()), "commits"),
    )


def _told(name: str, run: LastRun) -> Markup:
    rows = run.written.get(name, run.read)
    done = "" if rows is None else f", {rows:,} rows"
    words = {"COMPLETE": done, "FAIL": f", failed: {run.failure}", "ABORT": ", stopped", "START": ", has not ended"}
    return badge(ENDS[run.state], f"{duration(time.time() - run.at.timestamp())} ago{words[run.state]}")
