from collections.abc import Iterator

import pytest
import requests

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.page.requests import MOST_BYTES
from pulsar_lakehouse.page.server import PageServer, serve_page
from pulsar_lakehouse.settings import Settings


@pytest.fixture
def server(project: Settings) -> Iterator[PageServer]:
    served = serve_page(project, 0, "ann")
    yield served
    served.shutdown()
    served.server_close()


def test_the_url_lets_a_browser_in_and_it_stays_in(server: PageServer) -> None:
    browser, base = requests.Session(), server.url.partition("?")[0]
    assert browser.get(base).status_code == 401
    shown = browser.get(server.url)
    assert (shown.status_code, shown.url, "ann" in shown.text) == (200, base, True)
    assert browser.get(f"{base}tables").status_code == 200


def test_the_cookie_is_for_this_page_only(server: PageServer) -> None:
    given = requests.get(server.url, allow_redirects=False)
    assert given.headers["Set-Cookie"] == (
        f"lakehouse_{server.server_port}={server.token}; HttpOnly; SameSite=Strict; Path=/"
    )
    assert given.headers["Location"] == "/"


@pytest.mark.parametrize("cookie", ["", "lakehouse_{port}=", "lakehouse_{port}=ü", "other={token}", "=;=,\x7f"])
@pytest.mark.parametrize("path", ["", "sql", "style.css", "?token=wrong", "?token="])
def test_who_has_no_token_sees_nothing(server: PageServer, cookie: str, path: str) -> None:
    sent = cookie.format(port=server.server_port, token=server.token).encode()
    answer = requests.get(f"http://127.0.0.1:{server.server_port}/{path}", headers={"Cookie": sent})
    assert (answer.status_code, answer.text) == (
        401,
        "Open the whole URL that `lakehouse ui` printed: its token is missing or old.\n",
    )


def test_forms_are_taken_from_the_page_only_and_have_a_size(server: PageServer) -> None:
    browser, base = requests.Session(), server.url.partition("?")[0]
    browser.get(server.url)
    form, ours = {"statement": "SELECT 40 + 2 AS n"}, {"Origin": base.rstrip("/")}
    assert browser.post(f"{base}sql", data=form).status_code == 403
    assert '<td class="number">42</td>' in browser.post(f"{base}sql", data=form, headers=ours).text
    assert browser.post(f"{base}sql", data={"statement": "x" * MOST_BYTES}, headers=ours).status_code == 413


def test_a_port_that_is_taken_is_told(server: PageServer, project: Settings) -> None:
    with pytest.raises(LakehouseError, match=f"^--port {server.server_port} is taken by another program"):
        serve_page(project, server.server_port, "ann")


def test_paths_are_unquoted_once(server: PageServer, project: Settings) -> None:
    (project.report.parent / "2026:01").mkdir(parents=True)
    (project.report.parent / "2026:01" / "a b.html").write_text("found")
    browser, base = requests.Session(), server.url.partition("?")[0]
    browser.get(server.url)
    assert browser.get(f"{base}quality/2026%3A01/a%20b.html").text == "found"
    for path in ("%2e%2e/records", "..%2f..%2fetc/passwd", "%252e%252e/x", "\x00", "%00"):
        assert browser.get(f"{base}quality/{path}").status_code == 404
