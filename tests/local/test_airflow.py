from pathlib import Path

import pytest

from pulsar_lakehouse.local import airflow
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home


def test_what_the_shell_says_to_another_airflow_is_not_said_to_this_one(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "AIRFLOW__CORE__AUTH_MANAGER",
        "AIRFLOW_CONFIG",
        "AIRFLOW_HOME",
    ):
        monkeypatch.setenv(name, "another's")
    said = airflow._environment(own_home(settings, tmp_path))
    folder = tmp_path / "airflow"
    assert {name: value for name, value in said.items() if name.startswith("AIRFLOW")} == {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW_CONFIG": str(folder / "airflow.cfg"),
    }
