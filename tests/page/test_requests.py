from pathlib import Path

import pytest

from pulsar_lakehouse.page.requests import Answer, Request, User, file_in, sent

ANN = User("ann", may_act=True)


@pytest.mark.parametrize(
    ("headers", "is_from_page"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://here:1", "host": "here:1"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"origin": "http://here:1", "host": "here:1"}, True),
        ({"origin": "http://there:1", "host": "here:1"}, False),
        ({"origin": "http://here:2", "host": "here:1"}, False),
        ({"origin": "null", "host": "here:1"}, False),
        ({"host": "here:1"}, False),
        ({}, False),
    ],
)
def test_only_pages_of_the_same_server_may_send(headers: dict[str, str], is_from_page: bool) -> None:
    assert Request(path="ask", user=ANN, headers=headers).is_from_page == is_from_page


def test_values_come_from_the_query_and_the_form() -> None:
    asked = Request(path="ask", user=ANN, query="topic=orders&key=%C3%BC", body="note=a%0D%0Ab&key=1+2")
    assert asked.values == {"topic": "orders", "note": "a\nb", "key": "1 2"}


def test_an_answer_lets_the_browser_load_nothing_but_the_page() -> None:
    headers = Answer(body=b"", location="quarantine").headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'none'",
        "style-src": "'self'",
        "script-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'self'",
    }
    assert (headers["Location"], headers["Cache-Control"]) == ("quarantine", "no-store")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", "index.html"),
        ("index.html", "index.html"),
        ("deep/page.html", "deep/page.html"),
        ("deep", None),
        ("deep/../../secret.html", None),
        ("/etc/passwd", None),
        ("outside.html", None),
        ("a\0b", None),
        ("a" * 300, None),
    ],
)
def test_files_are_those_in_the_folder(tmp_path: Path, path: str, found: str | None) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    for file in (folder / "index.html", folder / "deep" / "page.html", tmp_path / "secret.html"):
        file.write_text("x")
    (folder / "outside.html").symlink_to(tmp_path / "secret.html")
    assert file_in(folder, path) == (folder / found if found else None)


def test_a_file_is_sent_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a{}")
    (tmp_path / "b").write_text("?")
    assert (sent(tmp_path / "a.css").kind, sent(tmp_path / "b").kind) == (
        "text/css; charset=utf-8",
        "application/octet-stream",
    )
