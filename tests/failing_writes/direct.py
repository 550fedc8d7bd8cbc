"""Lets each call fail, in each way, with which a table, a record or a lease is written without Spark.

It is run with the shim, prints how many times something failed, and raises AssertionError if it was not survived. With
a number, the power is lost so many times at each call instead.
"""

import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product

import pyarrow as pa
from deltalake import DeltaTable, Schema

from pulsar_lakehouse.jobs import snapshots
from pulsar_lakehouse.jobs.snapshots import Snapshot
from pulsar_lakehouse.leases.homes import home_id
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.power_cuts import remove_torn_commits
from pulsar_lakehouse.records import StepRecord, keep_step, step_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import warehouse_id
from pulsar_lakehouse.tables import direct
from pulsar_lakehouse.tables.direct import Merge
from pulsar_lakehouse.tables.stored import is_stored, stored_table
from tests.failing_writes.power_cut import make_disk, names_in
from tests.failing_writes.shim import Failure, Shim

NAME, STREAM = "silver.boats", "a stream"
BOATS = pa.schema({"id": pa.int64(), "name": pa.string()})
BY_ID = Merge(on=["id"], update={"name": "new.name"}, insert={"id": "new.id", "name": "new.name"})
FAILURES = [
    *((failure, 0) for failure in (Failure.FULL, Failure.INTERRUPTED, Failure.CRASH)),
    *product((Failure.ERROR, Failure.SHORT), (0, 1)),
]
"""Each with the number of calls after which there is a crash, if that is not 0."""
Step = Callable[[Settings], None]


def create(own: Settings) -> None:
    feed = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "3"}
    DeltaTable.create(own.table_path(NAME), Schema.from_arrow(BOATS), mode="ignore", configuration=feed)


def append(number: int) -> Step:
    """Append a batch, unless the table has it."""

    def do(own: Settings) -> None:
        table = stored_table(own, NAME)
        if (table.transaction_version(STREAM) or 0) < number:
            rows = pa.table({"id": [number], "name": ["Ada"]}, BOATS)
            direct.append_batch(own, NAME, rows, (STREAM, number), seen=table)

    return do


def merge(own: Settings) -> None:
    rows = pa.table({"id": [1, 9], "name": ["Bea", "Cai"]}, BOATS)
    assert direct.merge(own, NAME, stored_table(own, NAME), rows, BY_ID)


def identify(own: Settings) -> None:
    found = [(home_id(own), warehouse_id(own)) for _ in range(2)]
    assert found[0] == found[1]
    assert [len(id) for id in found[0]] == [32, 32]


def record(own: Settings) -> None:
    keep_step(own, StepRecord(step="land boats", rows=step_record(own, "land boats").rows or 1))


def lease(own: Settings) -> None:
    with write_lease(own, [NAME, "silver.cars"]):
        pass


def take_snapshot(own: Settings) -> None:
    if not snapshots.snapshots(own):
        snapshots.add(own, Snapshot(name="one", created_at=datetime.now(UTC), tables={}))
    assert [each.name for each in snapshots.snapshots(own)] == ["one"]


STEPS: dict[str, tuple[tuple[Step, ...], Step]] = {
    "create": ((), create),
    "append": ((create,), append(1)),
    "append again": ((create, append(1), append(2)), append(3)),
    "merge": ((create, append(1)), merge),
    "identify": ((), identify),
    "record": ((), record),
    "lease": ((), lease),
    "snapshot": ((create,), take_snapshot),
}


def rows_of(own: Settings) -> list[tuple[int, str]]:
    held = stored_table(own, NAME).to_pyarrow_table().to_pylist() if is_stored(own, NAME) else []
    return sorted((row["id"], row["name"]) for row in held)


def fail_everywhere(shim: Shim) -> int:
    """Returns how many times a call has failed."""
    under, failed = shim.under, 0
    for name, (before, do) in STEPS.items():
        made = Settings(home=under / name)
        made.home.mkdir()
        for step in before:
            step(made)
        whole, calls = done_once(shim, copied(made), do)
        for at, (failure, crash_after) in product(range(1, calls + 1), FAILURES):
            own = copied(made)
            with shim.failing(failure, at, crash_after):
                try:
                    do(own)
                except Exception:
                    assert shim.failed
            do(own)
            assert rows_of(own) == whole, (name, failure, at, crash_after, shim.failed)
            failed += bool(shim.failed)
            shutil.rmtree(own.home)
    return failed


def lose_power_everywhere(shim: Shim, times: int, draw: random.Random) -> int:
    """Returns how many times power was lost. What a step has done by its end must be there without doing it again."""
    lost = 0
    for name, (before, do) in STEPS.items():
        made = Settings(home=shim.under / name)
        made.home.mkdir()
        for step in before:
            step(made)
        whole, calls = done_once(shim, copied(made), do)
        for at in range(1, calls + 2):
            own = copied(made)
            held = names_in(own.home)
            with shim.failing(Failure.CRASH, at, notes=True), suppress(Exception):
                do(own)
            for number in range(times):
                cut = Settings(home=shim.under / f"cut-{number}")
                make_disk(shim, own.home, held, cut.home, draw)
                remove_torn_commits(cut)
                if at > calls:
                    assert rows_of(cut) == whole, name
                do(cut)
                assert rows_of(cut) == whole, (name, at, shim.failed)
                lost += 1
                shutil.rmtree(cut.home)
            shutil.rmtree(own.home)
    return lost


def copied(made: Settings) -> Settings:
    return Settings(home=shutil.copytree(made.home, made.home.with_name("home"), dirs_exist_ok=True))


def done_once(shim: Shim, own: Settings, do: Step) -> tuple[list[tuple[int, str]], int]:
    """The rows, and how many calls there are."""
    with shim.failing():
        do(own)
    whole = rows_of(own)
    shutil.rmtree(own.home)
    return whole, shim.calls


if __name__ == "__main__":
    shim = Shim.of_this_process()
    print(lose_power_everywhere(shim, int(sys.argv[1]), random.Random(1)) if sys.argv[1:] else fail_everywhere(shim))  # noqa: T201
