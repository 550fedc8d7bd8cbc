from pathlib import Path

import pytest

from lakehouse import airflow
from lakehouse.settings import Settings
from tests.lake import own_home

OTHERS = (
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC",
    "AIRFLOW__CORE__SQL_ALCHEMY_CONN",
    "AIRFLOW__CORE__EXECUTOR",
    "AIRFLOW__API_AUTH__JWT_SECRET",
)


def test_what_the_shell_says_to_another_airflow_is_not_said_to_this_one(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = own_home(settings, tmp_path)
    for name in (*OTHERS, "AIRFLOW_CONFIG", "AIRFLOW_HOME", "AIRFLOW__LOGGING__LOGGING_LEVEL"):
        monkeypatch.setenv(name, "another's")
    folder = tmp_path / "airflow"
    folder.mkdir()
    airflow._configure(lake, {"ports": {"web": 1, "task_logs": 2, "trigger_logs": 3}, "password": "secret"})
    said = airflow._environment(lake)
    assert [name for name in OTHERS if name in said] == []
    assert (said["AIRFLOW_HOME"], said["AIRFLOW_CONFIG"]) == (str(folder), str(folder / "airflow.cfg"))
    assert said["AIRFLOW__LOGGING__LOGGING_LEVEL"] == "another's"
