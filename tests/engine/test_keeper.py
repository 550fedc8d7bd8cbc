"""The engine with a process in the JVM's place that answers like it, and lives on for a second without input."""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pulsar_lakehouse.engine import borrowing, control
from pulsar_lakehouse.engine.borrowing import Loan, borrow
from pulsar_lakehouse.engine.launch import EndedError
from pulsar_lakehouse.engine.wire import receive, send_files
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.settings import Engine, Settings

JVM = """
import os, pathlib, struct, sys, time
pathlib.Path(os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]).write_bytes(struct.pack("!ii", 4711, 6) + b"secret")
sys.stdin.read()
time.sleep(1)
"""
OWNER = """
import fcntl, pathlib, sys, time
from tests.engine.test_keeper import wanted
from pulsar_lakehouse.engine.borrowing import borrow
lease = open(sys.argv[2], "a")
fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
print(borrow(pathlib.Path(sys.argv[1]), wanted(sys.argv[1]), [lease.fileno()]).pid, flush=True)
time.sleep(600)
"""


def wanted(folder: str | Path, *, fit: str = "a", code: str = JVM, heap: int = 2**30) -> dict[str, Any]:
    command, environment = [sys.executable, "-c", code], {"PATH": os.environ["PATH"]}
    return {
        "fit": fit,
        "heap": heap,
        "command": command,
        "environment": environment,
        "log": f"{folder}/log",
        "folder": None,
    }


@pytest.fixture
def home(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """A home with an engine."""
    home = settings.model_copy(update={"home": tmp_path / "home", "engine": Engine()})
    control.start(home)
    yield home
    while borrowing.LOANS:
        borrowing.LOANS[0].give_back(is_well=True)
    control.stop(home)


@pytest.fixture
def folder(home: Settings) -> Path:
    return control.folder(home)


def borrowed(folder: Path, **given: Any) -> Loan:
    loan = borrow(folder, wanted(folder, **given), [])
    assert loan is not None
    return loan


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def is_free(lease: Path) -> bool:
    with lease.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class Owner:
    """A process that has a lease, and has borrowed the JVM of the engine."""

    def __init__(self, folder: Path) -> None:
        self.lease = folder.parent / "lease"
        command = [sys.executable, "-c", OWNER, str(folder), str(self.lease)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.jvm = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def keeper_of(home: Settings) -> int:
    found = control.state(home)
    assert found is not None
    return int(found["pid"])


def test_a_jvm_is_lent_again_once_it_is_given_back(folder: Path) -> None:
    first = borrowed(folder)
    assert borrow(folder, wanted(folder), []) is None
    first.give_back(is_well=True)
    second = borrowed(folder)
    assert (second.pid, second.gateway) == (first.pid, first.gateway)


@pytest.mark.parametrize("is_well", [True, False])
def test_leases_are_free_once_it_is_given_back(folder: Path, is_well: bool) -> None:
    lease = folder.parent / "lease"
    with lease.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        loan = borrow(folder, wanted(folder), [file.fileno()])
    assert loan is not None
    assert not is_free(lease)
    loan.give_back(is_well=is_well)
    assert (is_free(lease), is_alive(loan.pid)) == (True, is_well)


def test_many_leases_are_held(folder: Path) -> None:
    files = [(folder.parent / f"lease{number}").open("a") for number in range(600)]
    for file in files:
        fcntl.flock(file, fcntl.LOCK_EX)
    loan = borrow(folder, wanted(folder), [file.fileno() for file in files])
    assert loan is not None
    for file in files:
        file.close()
    assert not any(is_free(Path(file.name)) for file in files)
    loan.give_back(is_well=True)
    assert all(is_free(Path(file.name)) for file in files)


def test_the_jvm_of_an_owner_that_is_killed_is_killed_before_its_lease_is_free(folder: Path) -> None:
    owner = Owner(folder)
    owner.kill()
    assert wait_until(lambda: is_free(owner.lease), "", 10)
    assert not is_alive(owner.jvm)


def test_a_lease_is_held_while_the_engine_is_frozen(home: Settings, folder: Path) -> None:
    owner, keeper = Owner(folder), keeper_of(home)
    os.kill(keeper, signal.SIGSTOP)
    owner.kill()
    time.sleep(0.3)
    assert (is_free(owner.lease), is_alive(owner.jvm)) == (False, True)
    os.kill(keeper, signal.SIGCONT)
    assert wait_until(lambda: is_free(owner.lease), "", 10)
    assert not is_alive(owner.jvm)


def test_a_lease_is_held_by_the_jvm_when_owner_and_engine_are_killed(home: Settings, folder: Path) -> None:
    owner, keeper = Owner(folder), keeper_of(home)
    os.kill(keeper, signal.SIGKILL)
    owner.kill()
    assert (is_free(owner.lease), is_alive(owner.jvm)) == (False, True)
    assert wait_until(lambda: is_free(owner.lease), "", 10)
    assert not is_alive(owner.jvm)
    assert control.start(home)  # what was killed is in nobody's way


def test_leases_are_free_once_it_is_given_back_though_the_engine_is_killed(home: Settings, folder: Path) -> None:
    lease = folder.parent / "lease"
    with lease.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        loan = borrow(folder, wanted(folder), [file.fileno()])
    assert loan is not None
    os.kill(keeper_of(home), signal.SIGKILL)
    loan.give_back(is_well=True)
    assert (is_free(lease), is_alive(loan.pid)) == (True, False)


def test_a_lease_of_an_owner_that_is_killed_while_it_sends_is_free(tmp_path: Path) -> None:
    """More files than one message takes are sent in several."""
    ours, theirs = socket.socketpair()
    with (tmp_path / "lease").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = b"[{}, 2]"
        ours.sendall(struct.pack("!i", len(text)) + text)
        send_files(ours, [file.fileno()])
    ours.close()
    with theirs, pytest.raises(ConnectionResetError):
        receive(theirs)
    assert is_free(tmp_path / "lease")


def test_an_engine_that_is_frozen_is_not_waited_for(
    home: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borrowing, "PATIENCE", 0.5)
    loan, keeper = borrowed(folder), keeper_of(home)
    os.kill(keeper, signal.SIGSTOP)
    assert borrow(folder, wanted(folder), []) is None
    loan.give_back(is_well=True)
    assert wait_until(lambda: not is_alive(keeper) and not is_alive(loan.pid), "", 10)


def test_a_frozen_engine_is_named(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PATIENCE", 0.5)
    os.kill(keeper := keeper_of(home), signal.SIGSTOP)
    with pytest.raises(LakehouseError, match=r"^the engine does not answer: "):
        control.state(home)
    os.kill(keeper, signal.SIGCONT)


def test_how_a_jvm_has_ended(folder: Path) -> None:
    loan = borrowed(folder)
    loan.kill()
    assert loan.wait(10) == -signal.SIGKILL
    loan.give_back(is_well=False)
    with pytest.raises(EndedError) as ended:
        borrowed(folder, code="raise SystemExit(3)")
    assert ended.value.code == 3
    assert is_alive(borrowed(folder).pid)


def test_other_properties_need_another_jvm(folder: Path) -> None:
    first = borrowed(folder, fit="a")
    first.give_back(is_well=True)
    second = borrowed(folder, fit="b")
    assert (second.pid != first.pid, is_alive(first.pid)) == (True, False)


@pytest.mark.parametrize("when", ["while it is idle", "while it is lent"])
def test_a_changed_module_needs_another_jvm(folder: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    module = folder.parent / "own.py"
    module.touch()
    monkeypatch.setattr(borrowing, "modules", lambda: {str(module): module.stat().st_mtime_ns})
    pids = []
    for number in range(4):
        loan = borrowed(folder)
        pids.append(loan.pid)
        if when == "while it is lent" and number == 1:
            module.write_text("changed")
        loan.give_back(is_well=True)
        if when == "while it is idle" and number == 1:
            module.write_text("changed")
    assert (pids[0] == pids[1], pids[1] == pids[2], pids[2] == pids[3]) == (True, False, True)


def test_a_jvm_that_has_grown_is_renewed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loan = borrowed(folder, heap=-(2**31))
    loan.give_back(is_well=True)
    assert not is_alive(loan.pid)


@pytest.mark.parametrize("how", ["asked", "removed"])
def test_the_end_of_an_engine(home: Settings, folder: Path, how: str) -> None:
    loan, keeper = borrowed(folder), keeper_of(home)
    loan.give_back(is_well=True)
    if how == "asked":
        control.stop(home)
    else:
        (folder / "socket").unlink()
    assert wait_until(lambda: not is_alive(keeper), "", 10)
    assert (is_alive(loan.pid), control.state(home)) == (False, None)


def test_a_jvm_that_nobody_borrows_ends(settings: Settings, tmp_path: Path) -> None:
    home = settings.model_copy(update={"home": tmp_path, "engine": Engine(idle_minutes=0.03)})
    control.start(home)
    first = borrowed(control.folder(home))
    time.sleep(3)
    assert is_alive(first.pid)
    first.give_back(is_well=True)
    assert wait_until(lambda: not is_alive(first.pid), "", 10)
    second = borrowed(control.folder(home))
    second.give_back(is_well=True)
    control.stop(home)
    assert second.pid != first.pid


def test_a_command_goes_on_while_its_engine_is_asked_to_end(home: Settings, folder: Path) -> None:
    loan = borrowed(folder)
    told = control.stop(home)
    assert told is not None
    assert told["borrower"]["pid"] == os.getpid()
    assert is_alive(loan.pid)
    loan.give_back(is_well=True)
    assert not is_alive(loan.pid)


def test_there_is_no_engine_without_minutes(settings: Settings, tmp_path: Path) -> None:
    home = settings.model_copy(update={"home": tmp_path, "engine": Engine(idle_minutes=0)})
    assert (control.start(home), control.state(home), control.stop(home)) == (False, None, None)


def test_a_home_has_one_engine(home: Settings, folder: Path) -> None:
    second = subprocess.run([sys.executable, "-m", "pulsar_lakehouse.engine.keeper", folder, "60"], timeout=10)
    assert second.returncode == 0
    assert is_alive(borrowed(folder).pid)


def test_a_home_may_have_a_long_name(settings: Settings, tmp_path: Path) -> None:
    home = settings.model_copy(update={"home": tmp_path / ("long" * 30), "engine": Engine()})
    assert control.start(home)
    loan = borrowed(control.folder(home))
    assert is_alive(loan.pid)
    loan.give_back(is_well=True)
    control.stop(home)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
def test_only_this_user_reaches_an_engine(home: Settings, folder: Path) -> None:
    assert (folder / "socket").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a socket does not tell the user at its other end")
def test_an_engine_of_another_user_lends_nothing(home: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert borrow(folder, wanted(folder), []) is None
    found = control.state(home)
    assert found is not None
    assert found["jvm"] is None
