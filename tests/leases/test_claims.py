"""Claims among homes. A folder stands for the store: it creates files only if they are not there, as a store does."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import psutil
import pytest

from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.leases import claims
from pulsar_lakehouse.leases.claims import claimed
from pulsar_lakehouse.leases.holders import Holder
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import folder

RUN = Holder.here("run", "step")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "RENEWAL", 0.2)
    monkeypatch.setattr(claims, "EXPIRY", 2.0)
    monkeypatch.setattr(claims, "has_tables", lambda _: True)


def home(settings: Settings, tmp_path: Path, name: str) -> Settings:
    (tmp_path / name / "leases").mkdir(parents=True, exist_ok=True)
    (tmp_path / "tables" / ".leases").mkdir(parents=True, exist_ok=True)
    return settings.model_copy(update={"home": tmp_path / name, "warehouse": str(tmp_path / "tables")})


@contextmanager
def held(settings: Settings, *tables: str, holder: Holder = RUN) -> Iterator[None]:
    with claimed(settings, tables, holder, time.monotonic() + 5):
        yield


def stored(settings: Settings) -> dict[str, bytes]:
    store = folder(settings, f"{settings.warehouse_root}/.leases")
    return {file["path"]: bytes(obstore.get(store, file["path"]).bytes()) for file in obstore.list(store).collect()}


def left_by_a_killed_process(settings: Settings, *tables: str) -> None:
    code = (
        "import os, sys\n"
        "from tests.leases.test_claims import claims, held; from pulsar_lakehouse.settings import load_settings\n"
        "claims.has_tables = lambda _: True\n"
        "with held(load_settings(home=sys.argv[1], warehouse=sys.argv[2]), *sys.argv[3:]): os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, settings.home, settings.warehouse_root, *tables], check=False)


def test_a_table_that_another_home_writes_is_busy_and_then_free(settings: Settings, tmp_path: Path) -> None:
    ours, theirs = home(settings, tmp_path, "ours"), home(settings, tmp_path, "theirs")
    with held(ours, "gold.notes"):
        busy = f"^gold.notes is being written by {re.escape(str(RUN))}: wait until it ends, or stop it$"
        with pytest.raises(BusyError, match=busy), held(theirs, "bronze.notes", "gold.notes"):
            pass
        with held(theirs, "bronze.notes"):
            pass
    with held(theirs, "gold.notes"):
        pass


def test_a_killed_holder_is_followed_at_once_in_its_home_and_later_in_others(
    settings: Settings, tmp_path: Path
) -> None:
    ours, theirs = home(settings, tmp_path, "ours"), home(settings, tmp_path, "theirs")
    left_by_a_killed_process(ours, "gold.notes")
    begun = time.monotonic()
    with held(ours, "gold.notes"):
        assert time.monotonic() - begun < claims.EXPIRY
    left_by_a_killed_process(ours, "gold.notes")
    begun = time.monotonic()
    with held(theirs, "gold.notes"):
        assert time.monotonic() - begun > claims.EXPIRY
        assert [name.rpartition("/")[2] for name in stored(theirs)] == [f"{3:020}"]


def test_all_tables_of_a_killed_holder_are_free_at_the_same_time(settings: Settings, tmp_path: Path) -> None:
    ours, theirs = home(settings, tmp_path, "ours"), home(settings, tmp_path, "theirs")
    tables = "bronze.notes", "silver.notes", "gold.notes"
    left_by_a_killed_process(ours, *tables)
    begun = time.monotonic()
    with held(theirs, *tables):
        assert claims.EXPIRY < time.monotonic() - begun < 2 * claims.EXPIRY


def test_maintenance_is_waited_for(settings: Settings, tmp_path: Path) -> None:
    ours, theirs = home(settings, tmp_path, "ours"), home(settings, tmp_path, "theirs")
    done = threading.Event()

    def maintain() -> None:
        with held(ours, "gold.notes", holder=Holder.here("maintain", "maintenance")):
            done.set()
            time.sleep(1)

    other = threading.Thread(target=maintain)
    other.start()
    done.wait()
    with held(theirs, "gold.notes"):
        other.join()


def test_of_many_that_claim_at_once_one_gets_the_table(settings: Settings, tmp_path: Path) -> None:
    homes, winners = [home(settings, tmp_path, f"home{n}") for n in range(6)], []
    end = threading.Event()

    def compete(own: Settings) -> None:
        try:
            with held(own, "gold.notes"):
                winners.append(own.home.name)
                end.wait()
        except BusyError:
            losers.append(own.home.name)

    losers: list[str] = []
    threads = [threading.Thread(target=compete, args=[own]) for own in homes]
    for thread in threads:
        thread.start()
    while len(losers) < 5:
        time.sleep(0.1)
    end.set()
    for thread in threads:
        thread.join()
    assert len(winners) == 1


def test_who_has_lost_a_claim_ends(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, ended = home(settings, tmp_path, "ours"), threading.Event()

    def end(line: str, code: int) -> None:
        assert code == 75
        assert re.match(r"gold\.notes: the right to write it was lost to pid \d+ on .* \(`lakehouse enrich`, ", line)
        ended.set()

    monkeypatch.setattr(claims, "_end", end)
    with held(ours, "gold.notes"):
        [(path, content)] = stored(ours).items()
        store = folder(ours, f"{ours.warehouse_root}/.leases")
        obstore.put(store, path[:-1] + "7", content.replace(b'"run"', b'"enrich"'))
        assert ended.wait(5)


def test_a_claim_counts_as_renewed_when_that_began(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes so late that others have nearly waited long enough."""
    ours, put = home(settings, tmp_path, "ours"), obstore.put
    store = folder(ours, f"{ours.warehouse_root}/.leases")
    held = claims.Claims(store=store, holder=RUN, home="ours", until=0)
    held.take(["gold.notes"])
    stored: list[float] = []

    def answer_late(*args: Any) -> None:
        put(*args)
        stored.append(time.monotonic())
        time.sleep(0.1)

    monkeypatch.setattr(obstore, "put", answer_late)
    held.renew()
    assert held._renewed < stored[0]


def test_the_end_is_that_of_the_children_too() -> None:
    code = (
        "import subprocess; from pulsar_lakehouse.leases.claims import _end\n"
        "print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "_end('lost', 75)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (75, "lakehouse: lost\n")
    child = int(done.stdout)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
