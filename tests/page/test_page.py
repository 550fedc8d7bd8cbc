"""Each view in a lake with hostile data, who may see it, and what is recorded of those who act."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import quote_plus, urlencode

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse.access import Reader
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.jobs import pipeline_status
from pulsar_lakehouse.jobs.pipeline_status import Status, TopicState
from pulsar_lakehouse.page import page as pages
from pulsar_lakehouse.page import started
from pulsar_lakehouse.page.page import Page
from pulsar_lakehouse.page.requests import Request, User
from pulsar_lakehouse.page.state import tables
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pulsar.backlog import TopicStatus
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from tests.lake import read
from tests.page.lake import HOSTILE, SHOWN, ask_for, send, waiting, write

WHICH = {"topic": "orders", "entity": "users", "reason": "missing"}
SELECTED = f"SELECT '{HOSTILE.replace(chr(39), chr(39) * 2)}' AS \"{HOSTILE.replace(chr(34), chr(34) * 2)}\""


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("", ""),
        ("tables", ""),
        ("quarantine", ""),
        ("ask", urlencode({**WHICH, "action": "release", "reason": HOSTILE, "entity": HOSTILE})),
        ("ask", urlencode({**WHICH, "action": HOSTILE})),
        ("ask", urlencode({**WHICH, "action": "release", "topic": HOSTILE})),
        ("trace", urlencode({"topic": "orders", "key": HOSTILE})),
        ("trace", urlencode({"topic": HOSTILE, "key": HOSTILE})),
        ("logs", ""),
        ("logs", urlencode({"file": "lakehouse.log"})),
        ("logs", urlencode({"file": "<img src=x>.log"})),
        (HOSTILE, ""),
        (f"quality/{HOSTILE}", ""),
    ],
)
def test_no_data_becomes_a_part_of_the_page(hostile: Settings, path: str, query: str) -> None:
    shown = ask_for(Page(hostile), path, query, user=HOSTILE).body.decode()
    assert "<img" not in shown
    assert shown.count("<script") == 1
    assert SHOWN in unescape(shown)


@pytest.mark.parametrize("statement", [SELECTED, HOSTILE, f"SELECT {HOSTILE}", f'SELECT * FROM "{HOSTILE}"'])
def test_no_result_and_no_error_of_a_query_becomes_a_part_of_the_page(hostile: Settings, statement: str) -> None:
    shown = send(Page(hostile), "sql", urlencode({"statement": statement})).body.decode()
    assert "<img" not in shown
    assert shown.count("<script") == 1
    assert "<img" in unescape(shown)


def test_the_first_view_begins_with_what_is_wrong(hostile: Settings) -> None:
    shown = unescape(ask_for(Page(hostile), "").body.decode())
    first, second = (shown.index(text) for text in ("the last run failed: <img", "a step was tried again: <img"))
    broken = shown.index("users: reconciliation does not hold: landed and accounted messages differ by 1")
    assert shown.index("What is wrong") < broken < first < second < shown.index("<h2>Topics</h2>")


def test_the_empty_project_says_what_makes_tables(project: Settings) -> None:
    page = Page(project)
    views = [ask_for(page, path) for path in ("", "tables", "quarantine", "trace", "sql", "logs")]
    assert [view.status for view in views] == [200] * 6
    assert "There is no table of gold yet: `lakehouse run` makes them." in views[0].body.decode()
    assert "None waits." in views[2].body.decode()


@pytest.mark.parametrize("path", ["quarantine", "ask", "retry", "trace", "sql", "logs"])
def test_who_may_not_act_sees_no_rows(hostile: Settings, path: str) -> None:
    refused = ask_for(Page(hostile), path, may_act=False)
    assert (refused.status, "You may see numbers, but no rows." in refused.body.decode()) == (403, True)
    assert "gold.revenue_by_hour" not in refused.body.decode()


def test_who_may_not_act_sees_numbers_and_links_to_nothing_else(hostile: Settings) -> None:
    shown = ask_for(Page(hostile), "", may_act=False)
    links = [part.partition('"')[0] for part in shown.body.decode().split('<a href="')[1:]]
    assert (shown.status, links) == (200, ["#content", "./", "tables", "quality/"])


@pytest.mark.parametrize("path", ["ask", "retry", "sql"])
def test_what_another_site_makes_a_browser_send_does_nothing(hostile: Settings, path: str) -> None:
    body = urlencode({**WHICH, "action": "release", "statement": "SELECT 1"})
    before = len(read(hostile, "quarantine.actions"))
    assert send(Page(hostile), path, body, site="cross-site").status == 403
    assert (len(read(hostile, "quarantine.actions")), list(started.states(hostile))) == (before, [])


def test_a_look_at_the_form_does_nothing(hostile: Settings) -> None:
    shown = ask_for(Page(hostile), "ask", urlencode({**WHICH, "action": "discard"}))
    assert "1 orders wait so. The next batch moves them to the discarded ones" in shown.body.decode()
    assert len(read(hostile, "quarantine.actions")) == 1


@pytest.mark.parametrize(("key", "lines"), [("", [1, 3]), ("9", [3]), ("none", [])])
def test_it_is_recorded_who_released_which_facts_and_why(hostile: Settings, key: str, lines: list[int]) -> None:
    write(hostile, "quarantine.waiting_orders", [waiting(3, key="9")])
    page = Page(hostile)
    done = send(page, "ask", urlencode({**WHICH, "action": "release", "key": key, "note": "why"}), user="bob")
    assert (done.status, done.location) == (303, "quarantine")
    asked = [row for row in read(hostile, "quarantine.actions") if row["requested_by"] == "bob"]
    assert sorted((row["action"], row["topic"], row["position"]["entry_id"], row["note"]) for row in asked) == [
        ("release", "orders", line, "why") for line in lines
    ]
    assert ("bob" in ask_for(page, "quarantine").body.decode()) == bool(lines)


def test_a_retry_starts_the_command_for_who_asked(hostile: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[Sequence[str], str]] = []
    monkeypatch.setattr(started, "start", lambda settings, arguments, who: begun.append((arguments, who)))
    assert send(Page(hostile), "retry", "topic=users", user="bob").location == "quarantine"
    assert begun == [(["quarantine", "retry", "--topic=users"], "bob")]
    assert send(Page(hostile), "retry", "topic=--help").status == 400
    assert ask_for(Page(hostile), "retry", "topic=users").status == 400
    assert len(begun) == 1


def test_a_query_shows_rows_and_says_what_is_wrong(hostile: Settings) -> None:
    page = Page(hostile)
    statement = "SELECT attempts, 'all' AS what, count(*) FROM quarantine.waiting_orders GROUP BY 1"
    shown = send(page, "sql", urlencode({"statement": statement})).body.decode()
    assert '<td class="number">1</td><td>all</td><td class="number">2</td>' in shown
    shown = send(page, "sql", "statement=DROP+TABLE+x").body.decode()
    assert "only one statement is run, and only one that reads, such as SELECT" in shown


def test_few_queries_run_at_once(hostile: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(hostile)
    nested: list[str] = []

    def query_fenced(settings: Settings, statement: str, reader: Reader) -> object:
        nested.append(send(page, "sql", "statement=again").body.decode())
        raise LakehouseError("done")

    monkeypatch.setattr(pages, "query_fenced", query_fenced)
    send(page, "sql", "statement=first")
    assert [pages.AT_ONCE, len(nested)] == [2, 2]
    assert "2 queries run already: try again in a moment" in nested[0]
    assert "done" in send(page, "sql", "statement=first").body.decode()


def test_the_state_is_found_once_for_views_that_follow_each_other(
    project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Settings] = []

    def status_of(settings: Settings) -> pipeline_status.Status:
        looks.append(settings)
        return pipeline_status.Status()

    monkeypatch.setattr(pages, "status_of", status_of)
    page = Page(project)
    for path in ("", "tables", ""):
        ask_for(page, path)
    assert len(looks) == 1


def test_an_unexpected_failure_is_a_line(project: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def status_of(settings: Settings) -> pipeline_status.Status:
        raise RuntimeError("the store <is> down")

    monkeypatch.setattr(pages, "status_of", status_of)
    shown = ask_for(Page(project), "")
    assert (shown.status, "the store &lt;is&gt; down" in shown.body.decode()) == (500, True)
    assert "Traceback" not in shown.body.decode()


def test_declarations_with_mistakes_are_told(tmp_path: Path, project: Settings) -> None:
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "users.py").write_text("import nothing_like_this")
    own = project.model_copy(update={"declarations": tmp_path / "declarations"})
    shown = ask_for(Page(own), "")
    assert (shown.status, "declarations/users.py:1" in shown.body.decode()) == (400, True)


def test_the_report_and_its_policy(project: Settings) -> None:
    folder = project.report.parent
    (folder / "deep").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>Report</h1>")
    (folder / "deep" / "a.css").write_text("a{}")
    page = Page(project)
    first, style = ask_for(page, "quality/", may_act=False), ask_for(page, "quality/deep/a.css")
    assert (first.body, style.kind) == (b"<h1>Report</h1>", "text/css; charset=utf-8")
    assert first.headers["Content-Security-Policy"].startswith("default-src 'self' 'unsafe-inline' data:; connect-src")
    assert [ask_for(page, f"quality/{path}").status for path in ("none.html", "../records", "%2e%2e/x")] == [404] * 3


def test_the_table_of_tables_and_the_graph(project: Settings) -> None:
    for path in ("silver.users", "silver.users"):
        write_deltalake(project.table_path(path), pa.table({"id": [1, 2]}), mode="append")
    shown = ask_for(Page(project), "tables").body.decode()
    assert '<td><strong>silver.users</strong></td><td class="number">4</td>' in shown
    assert '<text x="10" y="22">' not in shown
    assert "<style" not in shown
    assert ">4 rows, 0 s ago</text>" in shown


def test_links_of_a_key_are_whole(project: Settings) -> None:
    write(project, "quarantine.waiting_orders", [waiting(1, invoice="a&b=ü")])
    shown = ask_for(Page(project), "quarantine").body.decode()
    assert f'href="trace?topic=orders&amp;key={quote_plus("a&b=ü 1")}"' in shown


def test_files_of_the_page(project: Settings) -> None:
    page = Page(project)
    sent = [page.answer(Request(path=path, user=User("ann", may_act=False))).kind for path in ("style.css", "page.js")]
    assert sent == ["text/css; charset=utf-8", "text/javascript; charset=utf-8"]


def test_a_box_says_what_waits_in_its_topic() -> None:
    """Of two that are named, one is not there: only that is bad."""
    orders = Topic("orders", "id BIGINT NOT NULL", topic=("orders-eu", "orders-us"))
    pipeline = Pipeline(entities=(Entity(topic=orders, key="id", columns="id"),), enrichments=(), sql_tables=())
    eu = TopicStatus(name="orders-eu", messages=9, backlog=7, backlog_bytes=0, lag_seconds=0)
    there = replace(eu, name="orders", parts=(eu,))
    state = TopicState(name="orders", status=there, problem="orders-us: no such topic", left_out=["orders-us"])
    drawn = str(tables(pipeline, Status(topics=[state]), {}, {}))
    assert re.findall(r'( class="bad")?/>\s*<text[^>]*>topic (orders-..)</text><text[^>]*>([^<]*)<', drawn) == [
        ("", "orders-eu", "7 to land"),
        (' class="bad"', "orders-us", "unknown"),
    ]
