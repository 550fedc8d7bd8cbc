"""The DAGs of a project that `lakehouse init` has made."""

import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_lakehouse.cli.init import init_command
from pulsar_lakehouse.local import airflow
from pulsar_lakehouse.settings import load_settings
from tests.dags.test_policy import FILES

LOAD = """
import sys
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1])
print(bag.import_errors, *sorted(bag.dags))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    init_command(tmp_path / "shops")
    monkeypatch.chdir(tmp_path / "shops")
    return tmp_path / "shops"


def test_airflow_finds_all_dags_in_a_project(folder: Path) -> None:
    command = [sys.executable, "-c", LOAD, "dags"]
    found = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert found.splitlines()[-1] == " ".join(["{}", *(file.stem for file in FILES)])


def test_the_local_airflow_has_the_dags_of_the_project_if_there_are_any(folder: Path) -> None:
    assert airflow.dags_folder(load_settings()) == folder / "dags"
    (folder / "dags").rename(folder / "others")
    assert airflow.dags_folder(load_settings()) == FILES[0].parent
