import json
from pathlib import Path

import pytest

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.passed_settings import FILE, handed_over, take
from pulsar_lakehouse.settings import environment_of_others, load_settings


def test_settings_are_handed_over_by_a_file_that_others_can_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOUSE_POSTGRES__URL", "postgresql://ada:secret@host/gold")
    monkeypatch.setenv("LAKEHOUSE_RUN__RETRIES", "3")
    with handed_over() as environment:
        assert "secret" not in json.dumps(environment)
        assert Path(environment[FILE]).stat().st_mode & 0o077 == 0
        for name, value in {**environment, "LAKEHOUSE_RUN__RETRIES": "0"}.items():
            monkeypatch.setenv(name, value)
        take()
    settings = load_settings()
    assert settings.postgres.url is not None
    assert settings.postgres.url.get_secret_value() == "postgresql://ada:secret@host/gold"
    assert settings.run.retries == 0


def test_nothing_is_done_with_half_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(FILE, str(tmp_path / "gone.json"))
    with pytest.raises(ConfigurationError, match="No such file or directory: the program that wrote it has ended"):
        take()


def test_others_are_told_nothing_but_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKEHOUSE_HOME", "LAKEHOUSE_SERVE", "lakehouse_pulsar__token", "LANG"):
        monkeypatch.setenv(name, "told")
    said = {name for name, value in environment_of_others().items() if value == "told"}
    assert said == {"LAKEHOUSE_HOME", "LANG"}
