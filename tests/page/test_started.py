import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_lakehouse.page import started
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.settings import Settings

TOLD = "import getpass, os, sys; print(getpass.getuser(), os.environ['LAKEHOUSE_HOME'], *sys.argv[1:])"


def told(settings: Settings) -> list[tuple[str, str, bool, int | None]]:
    found = started.states(settings)
    return [(each.started.command, each.started.who, each.running, each.code) for each in found]


def ended(settings: Settings) -> bool:
    return all(not running for *_, running, _ in told(settings))


def test_a_command_runs_under_the_name_of_who_asked(project: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "COMMAND", (sys.executable, "-c", f"{TOLD}; sys.exit(3)"))
    started.start(project, ["quarantine", "retry"], "ann; rm -rf 'x'")
    assert wait_until(lambda: ended(project), "", 60)
    [state] = started.states(project)
    assert told(project) == [("lakehouse quarantine retry", "ann; rm -rf 'x'", False, 3)]
    assert (project.home / "logs" / state.log).read_text() == f"ann; rm -rf 'x' {project.home} quarantine retry\n"


def test_one_that_is_killed_has_no_exit_code(project: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = project.home / "pid"
    monkeypatch.setattr(started, "COMMAND", ("/bin/sh", "-c", f"echo $PPID $$ >{pids}; exec sleep 60"))
    started.start(project, ["land"], "ann")
    assert wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "", 60)
    assert told(project) == [("lakehouse land", "ann", True, None)]
    for pid in pids.read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    assert wait_until(lambda: ended(project), "", 60)
    assert told(project) == [("lakehouse land", "ann", False, None)]


def test_the_real_command(project: Settings) -> None:
    started.start(project, ["quarantine", "--help"], "ann")
    assert wait_until(lambda: ended(project), "", 120)
    [state] = started.states(project)
    assert state.code == 0
    assert "Inspect, retry, release or discard" in (project.home / "logs" / state.log).read_text()


def test_others_can_not_read_what_it_printed(project: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started, "COMMAND", ("/bin/true",))
    started.start(project, [], "ann")
    mode = subprocess.run(["stat", "-c", "%a", project.home / "logs" / "page"], capture_output=True, text=True)
    assert mode.stdout.strip() == "700"


def test_torn_files_are_left_out(project: Settings) -> None:
    folder: Path = project.home / "logs" / "page"
    folder.mkdir(parents=True)
    (folder / "1.json").write_text('{"command": "lake')
    (folder / "2.json").write_text('{"other": 1}')
    assert told(project) == []
