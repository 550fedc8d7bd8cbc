"""The page: which view answers a request, and who may see it. It reads tables and records, and starts no JVM."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import BoundedSemaphore, Lock

from pulsar_lakehouse import audit
from pulsar_lakehouse.access import Reader
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.inspection.query import query_fenced
from pulsar_lakehouse.jobs.lineage.flows import flows
from pulsar_lakehouse.jobs.lineage.kept import LastRun, last_run
from pulsar_lakehouse.jobs.operating import operator_of
from pulsar_lakehouse.jobs.pipeline_status import Status, status_of
from pulsar_lakehouse.jobs.quarantine import actions_of, ask, choose
from pulsar_lakehouse.jobs.trace import trace, traceable
from pulsar_lakehouse.page import rows, started, state
from pulsar_lakehouse.page.html import Child, Markup, badge, link, section, tag
from pulsar_lakehouse.page.requests import OF_REPORT, Answer, Request, file_in, sent
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of
from pulsar_lakehouse.tables.stored import table_names

KEPT_SECONDS = 2.0
"""For so long, all views show the same state."""
AT_ONCE = 2
"""Queries and traces that run at once: each can take a core and much memory of the server."""
FILES = ("style.css", "page.js")
REPORT = "quality/"


@dataclass(frozen=True)
class View:
    title: str
    show: Callable[["Page", Request], Child | Answer]
    of_rows: bool = True
    """Whether it shows rows, or acts on them: not everybody may see it."""
    refreshed: bool = False
    """Whether the browser shows it anew every few seconds."""


class Page:
    """The page of a project. Any number of threads may ask it."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock, self._until = settings, Lock(), 0.0
        self._state: tuple[Status, state.Commits] = Status(), {}
        self._free = BoundedSemaphore(AT_ONCE)

    def answer(self, request: Request) -> Answer:
        """Does not fail: what is wrong is in the answer."""
        if request.path in FILES:
            return sent(Path(__file__).with_name(request.path), kept_seconds=60)
        if request.path.startswith(REPORT):
            return self._report(request)
        if (view := VIEWS.get(request.path)) is None:
            return self._refusal(404, "There is no such view.", request)
        if request.method == "POST" and not request.is_from_page:
            return self._refusal(403, "This was not sent by a page of this server.", request)
        if view.of_rows and not request.user.may_act:
            return self._refusal(403, "You may see numbers, but no rows.", request)
        try:
            shown = view.show(self, request)
        except LakehouseError as error:
            return self._refusal(400, str(error), request)
        except Exception as error:  # a store that is down, a torn log: the libraries have many errors
            return self._refusal(500, cause_of(error), request)
        return shown if isinstance(shown, Answer) else _document(view, shown, request)

    def overview(self, request: Request) -> Child:
        return state.overview(self._pipeline, *self._now())

    def tables(self, request: Request) -> Child:
        found = ((name, last_run(self._settings, step)) for name, step in self._steps.items())
        runs: Mapping[str, LastRun] = {name: last for name, last in found if last}
        return state.tables(self._pipeline, *self._now(), runs)

    def quarantine(self, request: Request) -> Child:
        return rows.quarantine(self._settings, self._pipeline, self._reader(request))

    def ask(self, request: Request) -> Child | Answer:
        """Release or discard waiting facts; with GET, ask whether to."""
        action, topic, note = (request.values.get(name, "") for name in ("action", "topic", "note"))
        entity, reason, key = (request.values.get(name, "") for name in ("entity", "reason", "key"))
        if action not in rows.DOES or not entity or not reason:
            raise LakehouseError(f"{action}: must be one of {', '.join(rows.DOES)}, with an entity and a reason")
        chosen = choose(self._settings, topic, entity=entity, reason=reason, key=key)
        actions = actions_of(self._settings, action, chosen, who=request.user.name, note=note)
        if request.method == "POST":
            asked = f"page {action} {topic} --entity={entity} --reason={reason} --key={key} --note={note}"
            audit.note(self._settings, asked, who=request.user.name)
            ask(self._settings, actions)
            return Answer(status=303, location="quarantine")
        return rows.confirmation(chosen.enrichment, action, entity, reason, len(actions))

    def retry(self, request: Request) -> Answer:
        topic = request.values.get("topic", "")
        if request.method != "POST" or topic not in {each.name for each in self._pipeline.landed}:
            raise LakehouseError(f"{topic}: no such topic")
        started.start(self._settings, ["quarantine", "retry", f"--topic={topic}"], request.user.name)
        return Answer(status=303, location="quarantine")

    def trace(self, request: Request) -> Child:
        topic, key = request.values.get("topic", ""), request.values.get("key", "").strip()
        form = rows.trace_form(self._pipeline, topic, key)
        if not key:
            return section("What happened to a key", form)
        declared = traceable(self._pipeline, topic)
        values = key.split(maxsplit=len(declared.keys) - 1)
        reader = self._reader(request, f"{declared.topic.name} {key}")
        found = self._found(lambda: rows.events(trace(self._settings, declared, values, reader)))
        return section("What happened to a key", form, found)

    def sql(self, request: Request) -> Child:
        statement = request.values.get("statement", "") if request.method == "POST" else ""
        form = rows.sql_form(statement, list(table_names(self._settings)))
        if not statement.strip():
            return section("Query", form)
        reader = self._reader(request, statement)
        found = self._found(lambda: rows.results(query_fenced(self._settings, statement, reader)))
        return section("Query", form, found)

    def logs(self, request: Request) -> Child:
        folder, name = self._settings.home / "logs", request.values.get("file", "")
        return rows.logs(folder, name, file_in(folder, name) if name else None)

    @cached_property
    def _pipeline(self) -> Pipeline:
        return pipeline_of(self._settings)

    def _reader(self, request: Request, what: str = "") -> Reader:
        return operator_of(self._settings, who=request.user.name, did=f"page {request.path} {what}".rstrip())

    @cached_property
    def _steps(self) -> Mapping[str, str]:
        """The step that writes each table or sink. To find it takes a look into the SQL of tables."""
        return {name: flow.step for flow in flows(self._pipeline) for name in flow.writes}

    def _now(self) -> tuple[Status, state.Commits]:
        with self._lock:
            began = time.monotonic()
            if began >= self._until:
                found = status_of(self._settings)
                self._state = found, state.commits_of(found)
                took = time.monotonic() - began
                self._until = time.monotonic() + max(KEPT_SECONDS, took)
            return self._state

    def _found(self, find: Callable[[], Child]) -> Child:
        """What a query or a trace finds, or why it does not; only a few of them run at once."""
        if not self._free.acquire(blocking=False):
            return _alert(f"{AT_ONCE} queries run already: try again in a moment")
        try:
            return find()
        except LakehouseError as error:
            return _alert(str(error))
        finally:
            self._free.release()

    def _report(self, request: Request) -> Answer:
        folder = self._settings.report.parent
        if file := file_in(folder, request.path.removeprefix(REPORT)):
            return sent(file, OF_REPORT)
        return self._refusal(404, f"There is no such report in {folder}: `lakehouse validate` writes it.", request)

    def _refusal(self, status: int, why: str, request: Request) -> Answer:
        return _document(View("Not possible", Page.overview), _alert(why), request, status)


VIEWS = {
    "": View("Overview", Page.overview, of_rows=False, refreshed=True),
    "tables": View("Tables", Page.tables, of_rows=False, refreshed=True),
    "quarantine": View("Quarantine", Page.quarantine, refreshed=True),
    "trace": View("Trace", Page.trace),
    "sql": View("SQL", Page.sql),
    "logs": View("Logs", Page.logs),
    "ask": View("Quarantine", Page.ask),
    "retry": View("Quarantine", Page.retry),
}
LISTED = ("", "tables", "quarantine", "trace", "sql", "logs")


def _alert(why: str) -> Markup:
    return tag("p", badge("bad", why), class_="alert", role="alert")


def _document(view: View, content: Child, request: Request, status: int = 200) -> Answer:
    """The whole page around a view. Its links are relative, as it does not know where it is served."""
    above = "../" * request.path.count("/")
    shown = [name for name in LISTED if request.user.may_act or not VIEWS[name].of_rows]
    current = {name: "page" if VIEWS[name].title == view.title else None for name in shown}
    links = [tag("a", VIEWS[each].title, href=f"{above}{each}" or "./", aria_current=current[each]) for each in shown]
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{view.title} · Lakehouse"),
        tag("link", rel="stylesheet", href=f"{above}style.css"),
        tag("script", src=f"{above}page.js", defer=True),
    )
    body = (
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag(
            "header",
            tag("span", "Lakehouse", class_="brand"),
            tag("nav", links, link("Quality report", f"{above}{REPORT}"), aria_label="Views"),
            tag("span", request.user.name, class_="user", title="Who you are: it is noted with what you do"),
        ),
        tag("main", tag("h1", view.title), content, id="content", tabindex=-1, data_refreshed=view.refreshed),
        tag("footer", f"As of {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"),
    )
    whole = tag("html", tag("head", head), tag("body", body), lang="en")
    return Answer(body=f"<!doctype html>{whole}".encode(errors="replace"), status=status)
