import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_lakehouse.cli import commands
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from tests.cli.outcome import Command, Outcome
from tests.lake import own_topics


@pytest.fixture
def lakehouse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Command]:
    """The `lakehouse` command in this process, in an empty folder, with its own home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "stop_spark", lambda **_: None)  # all tests share the session, and this process
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: str, **environment: str) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["lakehouse", *arguments])
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                commands.main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return Outcome(int(end.value.code or 0), shown.out, shown.err)

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    """A home with empty topics in the broker."""
    return own_topics(settings, endpoint, tmp_path)
