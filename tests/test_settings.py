"""Where the tables are, given a folder or a URI."""

from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from deltalake import write_deltalake

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.inspection.table_status import table_statuses
from pulsar_lakehouse.settings import SHIPPED, environment_of_others, load_settings


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_folder_can_be_given_as_a_uri(tmp_path: Path, scheme: str) -> None:
    project = load_settings(home=tmp_path / "home", warehouse=f"{scheme}{tmp_path}/tables/")
    assert project.table_path("gold.notes") == f"{tmp_path}/tables/gold/notes"
    write_deltalake(project.table_path("gold.notes"), pa.table({"note": ["first"]}))
    assert query(project, "SELECT note FROM gold.notes").fetchall() == [("first",)]
    assert [status.name for status in table_statuses(project)] == ["gold.notes"]


def test_tables_and_checkpoints_can_be_in_a_store() -> None:
    project = load_settings(warehouse="s3a://bucket/tables/")
    assert project.table_path("gold.notes") == "s3a://bucket/tables/gold/notes"
    assert project.checkpoint_path("gold.notes") == "s3a://bucket/tables/.checkpoints/gold.notes"


@pytest.mark.parametrize("root", ["s3://bucket/tables", "gs://bucket", "s3a:///tables"])
def test_another_store_is_refused(root: str) -> None:
    told = rf"^warehouse: must be a folder, file:///path or s3a://bucket/path \(given: '{root}'\)$"
    with pytest.raises(ConfigurationError, match=told):
        load_settings(warehouse=root)


@pytest.mark.parametrize("token", ["s3cret", "a.s3cret.token\n", "Bearer a.s3cret.token"])
def test_a_token_that_can_not_be_one_is_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_settings(pulsar={"token": token})
    assert str(error.value) == (
        "pulsar.token: must be a JSON web token: three parts with a dot between, and no space or end of line"
    )


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_a_file_of_certificates_has_some(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        load_settings(pulsar={"tls_trust_certs": path})
    assert str(error.value) == (f"pulsar.tls_trust_certs: must be a file of certificates, in PEM (given: {path!r})")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"token": "a.s3cret.token", "token_file": "/run/token"}, "set one of token, token_file and oauth2_issuer_url"),
        (
            {"oauth2_key_file": "/run/key.json"},
            "oauth2_issuer_url and oauth2_key_file come together: set both, or neither",
        ),
        ({"oauth2_scope": "read"}, "oauth2_audience and oauth2_scope are for oauth2_issuer_url, which is not set"),
        ({"tls_key": "/run/key.pem"}, "tls_certificate and tls_key come together: set both, or neither"),
        (
            {"tls_certificate": "/none.pem", "tls_key": "/none.key"},
            "tls_certificate and tls_key must be PEM files of a certificate and its key, without a passphrase "
            "(given: /none.pem, /none.key)",
        ),
    ],
)
def test_credentials_that_do_not_go_together(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_settings(pulsar=given)
    assert str(error.value) == f"pulsar: {told}"


def test_a_certificate_of_our_own_needs_its_key_and_encryption(tmp_path: Path) -> None:
    own, other = (trustme.CA().issue_cert("us") for _ in range(2))
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    for name, issued in {"own": own, "other": other}.items():
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x"))
    (tmp_path / "locked.key").write_bytes(key.private_bytes(*form))
    for name in ("other", "locked"):
        with pytest.raises(ConfigurationError, match="must be PEM files of a certificate and its key, without a pass"):
            load_settings(pulsar={"tls_certificate": tmp_path / "own.pem", "tls_key": tmp_path / f"{name}.key"})
    pair = {"tls_certificate": tmp_path / "own.pem", "tls_key": tmp_path / "own.key"}
    with pytest.raises(
        ConfigurationError, match=r"needs a service_url with pulsar\+ssl:// and an admin_url with https:"
    ):
        load_settings(pulsar=pair | {"service_url": "pulsar+ssl://one:6651", "admin_url": "http://one:8080"})
    load_settings(pulsar=pair | {"service_url": "pulsar+ssl://one:6651", "admin_url": "https://one:8443"})


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKEHOUSE_HOME", "LAKEHOUSE_RUN__RETRIES", "LAKEHOUSE_SERVE__USERS"):
        monkeypatch.setenv(name, "")
    given = load_settings()
    assert (given.home, given.run.retries, given.serve.users) == (Path(".lakehouse").absolute(), 5, {})


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKEHOUSE_HOME", "LAKEHOUSE_DECLARATIONS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nothing_set")
def test_a_project_is_found_in_the_working_directory_and_has_its_own_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declarations").mkdir()
    monkeypatch.chdir(tmp_path)
    given = load_settings()
    assert (given.declarations, given.home) == (tmp_path / "declarations", tmp_path / ".lakehouse")


@pytest.mark.usefixtures("nothing_set")
def test_projects_that_are_named_have_homes_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = []
    for name in ("one/declarations", "two/declarations", "two/tests"):
        (tmp_path / name).mkdir(parents=True)
        monkeypatch.setenv("LAKEHOUSE_DECLARATIONS", str(tmp_path / name))
        homes.append(str(load_settings().home.relative_to(tmp_path)))
    assert homes == ["one/.lakehouse", "two/.lakehouse", "two/.lakehouse-tests"]


@pytest.mark.usefixtures("nothing_set")
def test_elsewhere_there_is_the_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = load_settings()
    assert (given.declarations, given.home) == (SHIPPED, tmp_path / ".lakehouse")


def test_declarations_are_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^declarations: must be a folder with declarations"):
        load_settings(declarations=tmp_path / "none")


def test_others_are_told_nothing_but_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKEHOUSE_HOME", "LAKEHOUSE_SERVE", "lakehouse_pulsar__token", "LANG"):
        monkeypatch.setenv(name, "told")
    said = {name for name, value in environment_of_others().items() if value == "told"}
    assert said == {"LAKEHOUSE_HOME", "LANG"}
