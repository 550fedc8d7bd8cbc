import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_lakehouse.downloads import artifacts
from pulsar_lakehouse.downloads.artifacts import Download, downloaded, pulsar_home
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import Settings


def deliver(content: bytes) -> object:
    """A stand-in for Ivy that delivers files with this content."""

    def run(download: Download, draft: Path) -> None:
        (draft / "files").mkdir(parents=True)
        for name in download.files:
            (draft / "files" / name).write_bytes(content)

    return run


def interrupt(download: Download, draft: Path) -> None:
    (draft / "files").mkdir(parents=True)
    raise KeyboardInterrupt


def test_the_downloads_are_there(settings: Settings) -> None:
    assert [jar.name for jar in downloaded("spark", settings.cache)] == [
        "delta-kernel-api-4.4.0.jar",
        "delta-kernel-defaults-4.4.0.jar",
        "delta-kernel-unitycatalog-4.4.0.jar",
        "delta-spark_4.2_2.13-4.4.0.jar",
        "delta-storage-4.4.0.jar",
        "spark-avro_2.13-4.1.1.jar",
    ]
    assert (pulsar_home(settings.cache) / "bin" / "pulsar").exists()


def test_a_wrong_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "_run_ivy", deliver(b"something else"))
    with pytest.raises(LakehouseError, match="not the file that was expected"):
        downloaded("spark", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["spark.lock"]


def test_an_interrupted_download_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "_run_ivy", interrupt)
    with pytest.raises(KeyboardInterrupt):
        downloaded("spark", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["spark.lock"]


def test_a_failed_download_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "LIST", tmp_path / "none.xml")
    download = Download(name="delta", title="Delta Lake", files={})
    with pytest.raises(LakehouseError, match=r"^could not download Delta Lake .+: .+$"):
        artifacts._fetch(download, tmp_path / "delta")


def test_a_server_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "SILENT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}/delta.jar"
        (tmp_path / "list.xml").write_text(f"""<ivy-module version="2.0">
            <info organisation="lakehouse" module="artifacts"/><configurations><conf name="delta"/></configurations>
            <dependencies><dependency org="io.delta" name="delta" rev="1" conf="delta->default">
            <artifact name="delta" type="jar" url="{url}"/></dependency></dependencies></ivy-module>""")
        download = Download(name="delta", title="Delta Lake", files={}, listed=tmp_path / "list.xml")
        with pytest.raises(LakehouseError, match=r"^could not download Delta Lake: nothing came for 1 s$"):
            artifacts._fetch(download, tmp_path / "delta")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LakehouseError, match=f"^{file / 'cache'}: can't keep spark there: Not a directory$"):
        downloaded("spark", file / "cache")


@pytest.mark.spark
def test_two_processes_download_once(tmp_path: Path) -> None:
    imports = "from pathlib import Path; from pulsar_lakehouse.downloads.artifacts import downloaded"
    code = f"{imports}; downloaded('spark', Path({str(tmp_path)!r}))"
    processes = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(said) == ["", "Downloading Delta Lake 4.4.0 and Avro for Spark, 13 MB, once\n"]
