"""Which token is sent, and what is told if there is none to send."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_lakehouse.bronze.pulsar import files
from pulsar_lakehouse.bronze.pulsar.admin import Admin
from pulsar_lakehouse.bronze.pulsar.credentials import refused, supplier, token_of
from pulsar_lakehouse.bronze.pulsar.options import Cluster, NoAnswerError, PulsarSourceError
from tests.issuer import Issuer, key_file, running_issuer
from tests.redirects import redirecting_brokers
from tests.tokens import token

ONE, OTHER = token("one"), token("other")


def cluster(**given: str) -> Cluster:
    return Cluster(service_url="pulsar://127.0.0.1:1", admin_url="http://127.0.0.1:1", **given)  # type: ignore[arg-type]


def line(given: Cluster) -> str:
    with pytest.raises(PulsarSourceError) as error:
        token_of(given)
    assert isinstance(error.value, NoAnswerError) == ("answer" in str(error.value))
    return str(error.value)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


def test_a_token_that_was_renewed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{ONE}\n")
    given = cluster(token_file=str(path))
    supply = supplier(given)
    before = (token_of(given), supply())
    path.write_text(OTHER)
    assert [before, (token_of(given), supply())] == [(ONE, ONE), (OTHER, OTHER)]


def test_a_file_that_is_just_being_written(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch()
    threading.Timer(0.3, path.write_text, [ONE]).start()
    assert token_of(cluster(token_file=str(path))) == ONE


def test_without_a_token_the_client_gets_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error there would abort the process."""
    monkeypatch.setattr(files, "PAUSES", ())
    path = tmp_path / "token"
    path.write_text(ONE)
    supply = supplier(cluster(token_file=str(path)))
    path.unlink()
    assert supply() == ONE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("s3cret", "must be a JSON web token: three parts with a dot between, and no space or end of line"),
        (b"\xff\xff", "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_a_file_without_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes | None, why: str
) -> None:
    monkeypatch.setattr(files, "PAUSES", (0.01,))
    path = tmp_path / "token"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    given = cluster(token_file=str(path))
    assert line(given) == f"option tokenFile: {path}: {why}"
    with pytest.raises(PulsarSourceError, match=f"^option tokenFile: {path}: "):
        Admin(given).partitions("persistent://public/default/events")


def test_an_issuer_is_asked_again_when_most_of_a_tokens_life_is_over(issuer: Issuer, tmp_path: Path) -> None:
    issuer.lifetime = 2
    path = str(key_file(tmp_path))
    given = cluster(oauth2_issuer_url=issuer.url, oauth2_key_file=path, oauth2_audience="pulsar", oauth2_scope="read")
    first = [token_of(given) for _ in range(3)]
    time.sleep(1.7)
    assert (len(set(first)), token_of(given) in first) == (1, False)
    form = {"grant_type": "client_credentials", "client_id": "owner", "audience": "pulsar", "scope": "read"}
    assert issuer.asked == [form, form]
    assert "s3cret" not in repr(given)


def test_an_issuer_that_does_not_answer_while_the_last_token_is_valid(issuer: Issuer, tmp_path: Path) -> None:
    issuer.lifetime = 3
    given = cluster(oauth2_issuer_url=issuer.url, oauth2_key_file=str(key_file(tmp_path)))
    first = token_of(given)
    issuer.status = 503
    time.sleep(2.5)
    assert token_of(given) == first
    time.sleep(0.6)
    assert line(given) == f"option oauth2IssuerUrl: {issuer.url}: it answered 503 Service Unavailable"


def test_an_issuer_that_gives_no_token(issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAUSES", ())
    right, (wrong, empty) = key_file(tmp_path), [tmp_path / name for name in ("wrong", "empty")]
    for folder in (wrong, empty):
        folder.mkdir()
    key_file(wrong, client_secret="wr0ng")
    (empty / "key.json").write_text('{"client_id": "owner"}')

    def told(url: str, file: Path) -> str:
        return line(cluster(oauth2_issuer_url=url, oauth2_key_file=str(file)))

    base = issuer.url.removesuffix("/realms/tests")
    found = [
        told(issuer.url, wrong / "key.json"),
        told(issuer.url, empty / "key.json"),
        told(issuer.url, tmp_path / "none.json"),
        told(base, right),
        told("http://127.0.0.1:1", right),
    ]
    issuer.status = 503
    found.append(told(issuer.url, right))
    assert found == [
        f"option oauth2KeyFile: {issuer.url} refuses the client owner: invalid_client: Invalid client secret",
        f"option oauth2KeyFile: {empty}/key.json: must be a JSON file with client_id and client_secret",
        f"option oauth2KeyFile: {tmp_path}/none.json: No such file or directory",
        f"option oauth2IssuerUrl: {base}: no issuer of tokens: 404 for {base}/.well-known/openid-configuration",
        "option oauth2IssuerUrl: http://127.0.0.1:1: no answer: ConnectionError",
        f"option oauth2IssuerUrl: {issuer.url}: it answered 503 Service Unavailable",
    ]


def test_what_a_broker_has_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token("one", seconds=-1_000_000_000))
    found = [
        refused(cluster()),
        refused(cluster(token=ONE)),
        refused(cluster(token_file=str(path))),
        refused(cluster(tls_certificate="/run/own.pem", tls_key="/run/own.key")),
    ]
    assert str(found[2])[:47] == "the token of option tokenFile, which expired at"
    assert [*found[:2], found[3]] == [None, "the token", "the certificate of option tlsCertificate, /run/own.pem,"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"tls_trust_certs": "/none.pem"},
            "Could not find a suitable TLS CA certificate bundle, invalid path: /none.pem",
        ),
        (
            {"tls_certificate": "/none.pem", "tls_key": "/none.key"},
            "Could not find the TLS certificate file, invalid path: /none.pem",
        ),
    ],
)
def test_a_file_that_an_executor_lacks(given: dict[str, str], line: str) -> None:
    there = Cluster(service_url="pulsar+ssl://x", admin_url="https://127.0.0.1:1", **given)  # type: ignore[arg-type]
    with pytest.raises(PulsarSourceError) as error:
        Admin(there).partitions("persistent://public/default/events")
    assert str(error.value) == line


def test_a_netrc_does_not_replace_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine localhost login somebody password else\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with redirecting_brokers({"partitions": 1}, token=ONE) as url:
        named = Cluster(service_url="pulsar://x", admin_url=url.replace("127.0.0.1", "localhost"), token=ONE)
        found = Admin(named).partitions("persistent://public/default/events")
    assert found == ["persistent://public/default/events-partition-0"]
