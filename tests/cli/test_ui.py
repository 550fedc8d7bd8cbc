"""`lakehouse ui` up to the page itself, which tests/page tests."""

import socket
from types import SimpleNamespace

import pytest
import requests

from tests.cli.outcome import Command


def test_it_tells_a_url_at_which_the_page_is(lakehouse: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[requests.Response] = []

    def say(line: str) -> None:
        shown.append(requests.Session().get(line.split()[4].rstrip(",")))

    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pulsar_lakehouse.cli.ui.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("pulsar_lakehouse.cli.report.say", say)
    assert lakehouse("ui").code == 130
    assert [(page.status_code, "<h1>Overview</h1>" in page.text) for page in shown] == [(200, True)]


def test_a_port_that_is_taken_is_one_line(lakehouse: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = lakehouse("ui", "--port", str(port))
    told = f"lakehouse: --port {port} is taken by another program: set another, or 0 for a free one\n"
    assert (done.code, done.err) == (1, told)
