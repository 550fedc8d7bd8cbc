import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.leases import leases
from pulsar_lakehouse.leases.leases import lease_between_rounds, write_lease
from pulsar_lakehouse.leases.turns import turn_at
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home

HOLD = """
import sys
from pathlib import Path
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.settings import load_settings
with write_lease(load_settings(home=Path(sys.argv[1])), ["silver.users"]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_another_process_is_named_until_it_is_killed(settings: Settings, tmp_path: Path) -> None:
    own = own_home(settings, tmp_path)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(BusyError, match=rf"^silver.users is being written by pid {holder.pid} "),
            write_lease(own, ["bronze.users", "silver.users"]),
        ):
            pass
        with write_lease(own, ["bronze.users"]):
            pass
        holder.kill()
    with write_lease(own, ["silver.users"]):
        assert json.loads((tmp_path / "leases" / "silver.users").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("text", [b"pid 7 on a (`lakehouse maintain`, since 12:00:00 UTC)", b'{"pid": ', b"\xff", b""])
def test_a_holder_of_another_release_is_named_another_process(settings: Settings, tmp_path: Path, text: bytes) -> None:
    own = own_home(settings, tmp_path)
    with write_lease(own, ["silver.users"]):
        (tmp_path / "leases" / "silver.users").write_bytes(text)
        for lease in write_lease, lease_between_rounds:
            busy = pytest.raises(BusyError, match=r"^silver.users is being written by another process: ")
            with busy, lease(own, ["silver.users"]):
                pass


def test_what_keeps_a_table_up_is_waited_for(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_home(settings, tmp_path)
    with ExitStack() as maintenance:
        maintenance.enter_context(write_lease(own, ["silver.users"], command="maintain", kind="maintenance"))
        sleep = time.sleep

        def sleep_and_end(seconds: float) -> None:
            sleep(seconds)
            maintenance.close()

        monkeypatch.setattr(time, "sleep", sleep_and_end)
        with write_lease(own, ["bronze.users", "silver.users"]):
            pass


def test_what_keeps_a_table_up_for_too_long_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_home(settings, tmp_path)
    monkeypatch.setattr(leases, "PATIENCE", 0.3)
    with (
        write_lease(own, ["silver.users"], command="purge", kind="maintenance"),
        pytest.raises(BusyError, match=rf"by pid {os.getpid()} on {socket.gethostname()} \(`lakehouse purge`, since "),
        write_lease(own, ["silver.users"]),
    ):
        pass


def test_a_process_that_inherits_the_files_holds_the_lease(settings: Settings, tmp_path: Path) -> None:
    own = own_home(settings, tmp_path)
    with write_lease(own, ["silver.users"]) as lease:
        heir = subprocess.Popen(["sleep", "60"], pass_fds=lease.files)
    with pytest.raises(BusyError), write_lease(own, ["silver.users"]):
        pass
    heir.kill()
    heir.wait()
    with write_lease(own, ["silver.users"]):
        pass


def test_a_turn_that_is_lent_is_taken_back_when_maintenance_ends(settings: Settings, tmp_path: Path) -> None:
    own = own_home(settings, tmp_path)
    tables = ["bronze.users", "silver.users"]
    with write_lease(own, tables, command="run --every 2s", kind="rounds") as lease:
        with (
            pytest.raises(
                BusyError, match=r"^silver.users is being written by pid \d+ on .* \(`lakehouse run --every 2s`"
            ),
            turn_at(own, ["gold.orders", "silver.users"], command="maintain", kind="maintenance", patience=0),
        ):
            pass
        ended: list[bool] = []
        with ThreadPoolExecutor() as pool:
            begun, beat = threading.Event(), threading.Event()
            with lease.lent(beat.set):
                pool.submit(_maintain, own, tables, begun, beat, ended)
                begun.wait()
            assert ended == [True]


def _maintain(
    own: Settings, tables: list[str], begun: threading.Event, beat: threading.Event, ended: list[bool]
) -> None:
    with turn_at(own, tables, command="maintain", kind="maintenance", patience=60):
        begun.set()
        ended.append(beat.wait(60))  # who waits shows life


def test_what_a_run_that_goes_on_has_is_borrowed_between_two_rounds(settings: Settings, tmp_path: Path) -> None:
    own = own_home(settings, tmp_path)
    borrowed: list[int] = []

    def borrow(begun: threading.Event) -> None:
        with lease_between_rounds(own, ["bronze.users", "gold.orders", "silver.users"]) as lease:
            begun.set()
            borrowed.extend((len(lease.locks), len(lease.turns)))

    with write_lease(own, ["bronze.users", "silver.users"], command="run --every 2s", kind="rounds") as lease:
        with ThreadPoolExecutor() as pool:
            begun = threading.Event()
            with lease.lent():
                pool.submit(borrow, begun)
                assert begun.wait(60)
        assert borrowed == [1, 3]


def test_what_a_run_that_ends_has_is_not_waited_for(settings: Settings, tmp_path: Path) -> None:
    own = own_home(settings, tmp_path)
    with (
        write_lease(own, ["silver.users"], command="run"),
        pytest.raises(BusyError, match=r"^silver.users is being written by .* \(`lakehouse run`, since .* or stop it$"),
        lease_between_rounds(own, ["bronze.users", "silver.users"]),
    ):
        pass


def test_a_run_that_is_starting_goes_before_who_borrows(settings: Settings, tmp_path: Path) -> None:
    own, tables = own_home(settings, tmp_path), ["bronze.users", "silver.items", "silver.users"]
    begins, borrowed = threading.Event(), threading.Event()

    def run() -> None:
        begins.set()
        with write_lease(own, tables, command="run --every 2s", kind="rounds") as lease, lease.lent():
            assert borrowed.wait(60)

    def borrow() -> int:
        with lease_between_rounds(own, tables) as lease:
            borrowed.set()
            return len(lease.locks)

    with ThreadPoolExecutor() as pool:
        with turn_at(own, ["silver.items"], command="maintain", kind="maintenance", patience=60):
            running = pool.submit(run)
            assert begins.wait(60)
            time.sleep(0.2)  # the run waits for the turn, and has no lease yet of the table after it
            borrowing = pool.submit(borrow)
            time.sleep(0.2)
        running.result(60)
        assert borrowing.result(60) == 0
