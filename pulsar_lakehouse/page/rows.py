"""The views of rows: what waits in quarantine, what happened to a key, what a query finds, and logs."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from html import escape
from pathlib import Path

from pulsar_lakehouse.access import Reader
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.inspection.query import MOST_RESULTS, MOST_SECONDS, Found, query
from pulsar_lakehouse.jobs.quarantine import choose, left_out_by_reason, malformed_by_reason, waiting_by_state
from pulsar_lakehouse.jobs.trace import Event
from pulsar_lakehouse.page.html import Child, Markup, Number, ago, badge, cut, grid, link, section, tag
from pulsar_lakehouse.page.started import State, states
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import is_stored

DOES = {
    "release": "The next batch tries them again, including those that are no longer retried.",
    "discard": "The next batch moves them to the discarded ones, where they stay.",
}
"""What the actions on waiting facts do."""
TAIL = 65_536
"""The last bytes of a log, which are shown."""


def quarantine(settings: Settings, pipeline: Pipeline, reader: Reader) -> Child:
    return [
        *(section(f"Waiting {facts.topic.name}", _waiting(settings, facts)) for facts in pipeline.enrichments),
        section("Malformed messages", _malformed(settings, reader)),
        section("Rows that SQL tables leave out", _left_out(settings, reader)),
        section("What people asked for", _asked(settings)),
        section("Commands started here", _commands(list(states(settings)))),
    ]


def _waiting(settings: Settings, facts: Enrichment) -> Markup:
    topic, rows = facts.topic.name, []
    found = (
        waiting_by_state(settings, choose(settings, topic)).fetchall()
        if is_stored(settings, facts.waiting.name)
        else ()
    )
    for reason, entity, count, oldest, keys, example, tried, since, expired in found:
        which = {"topic": topic, "entity": entity, "reason": reason}
        asks = [link(f"{action.title()}…", "ask", action=action, **which) for action in DOES]
        traced = link(oldest, "trace", topic=topic, key=oldest)
        told = badge("bad", f"{expired:,}") if expired else "none"
        rows.append((tag("strong", entity), reason, count, keys, example, ago(since), traced, tried, told, asks))
    columns = (
        "waits for",
        "reason",
        topic,
        "keys",
        "such as",
        "since",
        "oldest",
        "tried",
        "no longer retried",
        "action",
    )
    return grid(f"Waiting {topic}", columns, rows, "None waits.")


def _malformed(settings: Settings, reader: Reader) -> Markup:
    found = malformed_by_reason(settings, reader)
    rows = [
        (tag("strong", topic), cut(str(reason)), count, ago(since), ago(until), _button("Retry", "retry", topic=topic))
        for topic, reason, count, since, until in (found.fetchall() if found else ())
    ]
    told = grid(
        "Malformed messages",
        ("topic", "reason", "messages", "since", "until", "retry all of the topic"),
        rows,
        "There is none.",
    )
    note = "A retry moves those that satisfy their contract, once that was fixed, to their tables. It starts Spark."
    return Markup(told + tag("p", note, class_="note") * bool(rows))


def _left_out(settings: Settings, reader: Reader) -> Markup:
    found = left_out_by_reason(settings, reader)
    rows = [
        (tag("strong", table), cut(reason), count, cut(str(example)), ago(since))
        for table, reason, count, example, since in (found.fetchall() if found else ())
    ]
    return grid("Rows left out", ("table", "reason", "rows", "such as", "since"), rows, "There is none.")


def _asked(settings: Settings) -> Markup:
    statement = f"""
        SELECT action, topic, requested_by, note, max(requested_at), count(*) FROM {ACTIONS.name}
        GROUP BY action, topic, requested_by, note, date_trunc('minute', requested_at) ORDER BY 5 DESC LIMIT 20
    """
    found = query(settings, statement).fetchall() if is_stored(settings, ACTIONS.name) else ()
    rows = [
        (tag("strong", action), topic, count, who, cut(note or ""), ago(at))
        for action, topic, who, note, at, count in found
    ]
    return grid("Actions", ("action", "topic", "messages", "who", "note", "when"), rows, "Nothing yet.")


def _commands(found: Sequence[State]) -> Markup:
    rows = []
    for each in found:
        ended = {None: badge("bad", "killed"), 0: badge("good", "done")}
        state = badge("idle", "runs") if each.running else ended.get(each.code) or badge("bad", f"failed, {each.code}")
        log = link("log", "logs", file=each.log)
        rows.append((tag("code", each.started.command), state, each.started.who, ago(each.started.at), log))
    return grid("Commands", ("command", "state", "who", "when", "output"), rows, "None.")


def _button(text: str, path: str, **values: str) -> Markup:
    hidden = (tag("input", type="hidden", name=name, value=value) for name, value in values.items())
    return tag("form", hidden, tag("button", text), method="post", action=path)


def confirmation(facts: Enrichment, action: str, entity: str, reason: str, count: int) -> Child:
    """The form that asks what to do with waiting facts; nothing is done before it is sent."""
    topic = facts.topic.name
    hidden = {"action": action, "topic": topic, "entity": entity, "reason": reason}
    return tag(
        "section",
        tag("h2", f"{action.title()} {topic} that wait for {entity}: {reason}?"),
        tag("p", f"{count:,} {topic} wait so. {DOES[action]}"),
        tag(
            "form",
            (tag("input", type="hidden", name=name, value=value) for name, value in hidden.items()),
            tag("label", f"Only those that wait for this key of {entity} (optional)", tag("input", name="key")),
            tag("label", "Why, for the record (optional)", tag("input", name="note", maxlength=500)),
            tag(
                "p",
                tag("button", f"{action.title()}", class_="danger" if action == "discard" else "primary"),
                " ",
                link("Cancel", "quarantine"),
            ),
            method="post",
            action="ask",
            class_="tall",
        ),
    )


def trace_form(pipeline: Pipeline, topic: str, key: str) -> Markup:
    names = [*(each.topic.name for each in pipeline.enrichments), *(each.name for each in pipeline.entities)]
    options = (tag("option", name, value=name, selected=name == topic) for name in names)
    return tag(
        "form",
        tag("label", "Topic", tag("select", options, name="topic")),
        tag("label", "Key, with a space between its columns", tag("input", name="key", value=key, required=True)),
        tag("button", "Trace", class_="primary"),
        method="get",
        action="trace",
        class_="wide",
    )


def events(found: Sequence[Event]) -> Markup:
    rows = (
        (
            tag("time", f"{each.at:%Y-%m-%d %H:%M:%S}", datetime=each.at.isoformat()),
            tag("strong", each.table),
            "" if each.version is None else Number(each.version),
            tag("code", each.message),
            cut(each.what),
        )
        for each in found
    )
    return grid("What happened", ("at, UTC", "table", "version", "message", "what happened"), rows)


def sql_form(statement: str, tables: Sequence[str]) -> Child:
    limits = f"Only reads, for up to {MOST_SECONDS:g} s, and shows up to {MOST_RESULTS:,} rows. Ctrl+Enter runs it."
    text = Markup(f"\n{escape(statement)}")  # as it was sent: it is run again
    area = tag("textarea", text, name="statement", rows=6, spellcheck="false", required=True, autofocus=not statement)
    names = tag("details", tag("summary", "Tables"), tag("p", ", ".join(tables) or "none yet"))
    run = tag("p", tag("button", "Run", class_="primary"), " ", tag("span", limits, class_="note"))
    return tag(
        "form",
        tag("label", "One statement of DuckDB's SQL", area),
        run,
        names,
        method="post",
        class_="tall",
        action="sql",
    )


def results(found: Found) -> Child:
    if not found.rows:
        return tag("p", "No row.", class_="empty")
    shown = grid(
        "Result", [cut(each) for each in found.columns], ([_value(each) for each in row] for row in found.rows)
    )
    cut_off = f"Only the first {len(found.rows):,} rows are shown." if found.is_cut else f"{len(found.rows):,} rows."
    return [tag("p", cut_off, class_="note"), shown]


def _value(value: object) -> Child:
    match value:
        case None:
            return tag("span", "NULL", class_="null")
        case bool() | int() | float() | Decimal():
            return Number(value)
        case bytes():
            return cut(value.decode(errors="replace"))
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
    return cut(str(value))


def logs(folder: Path, name: str, file: Path | None) -> Child:
    """The files of a folder of logs, and the end of the chosen one."""
    found = sorted(
        (each for each in folder.rglob("*") if each.suffix == ".log"), key=lambda each: -each.stat().st_mtime
    )
    rows = (
        (link(path, "logs", file=path), Number(f"{each.stat().st_size / 1000:,.1f}"), ago(each.stat().st_mtime))
        for each in found
        for path in [str(each.relative_to(folder))]
    )
    listed = section("Logs", grid("Logs", ("file", "kB", "changed"), rows, f"There is none in {folder}."))
    if file is None:
        return listed
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - TAIL))
        text = log.read().decode(errors="replace")
    return [section(name, tag("pre", text, tabindex=0, class_="scroll")), listed]
