"""What the product really does is a run of the model, and leaves what the model has then."""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pulsar_lakehouse.bronze import small_backlogs
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.bronze.partitions import CREATED, creation_times, held_by, source_options
from pulsar_lakehouse.bronze.pulsar.admin import Held
from pulsar_lakehouse.bronze.pulsar.columns import ARROW_SCHEMA, TIMESTAMP
from pulsar_lakehouse.bronze.pulsar.options import Options
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.pulsar.positions import Ledger, Position, Range
from pulsar_lakehouse.checkpoints import batches
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.engine import borrowing, control
from pulsar_lakehouse.engine.launch import launch
from pulsar_lakehouse.engine.wire import close, receive
from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.leases import leases
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Engine, Settings
from pulsar_lakehouse.spark import session
from pulsar_lakehouse.tables.declared import EACH_TABLE
from pulsar_lakehouse.tables.stored import stored_table
from tests.engine.test_keeper import JVM, wanted
from tests.lake import own_home, read
from tests.model.explorer import worlds_after
from tests.model.protocol import Scope
from tests.model.test_model import model_of
from tests.model.world import World

EVENTS = Topic("events", "id BIGINT NOT NULL")
TABLE = EVENTS.bronze_table
ROWS = pa.schema([*ARROW_SCHEMA, ("landed_at", TIMESTAMP), ("publish_date", pa.date32())])
LANDING = Scope(messages=2, commands=("land",), writers=("A",), has_engine=False)


def shown(does: str) -> str | None:
    """What is recorded of a step of the model: of another process, and of what leaves no trace, nothing."""
    return None if does.startswith("the engine") or does in ("A starts a JVM", "A plans a batch") else does


class KilledError(BaseException):
    """Stands for `kill -9` in a process that goes on."""


class Broker(Plan):
    """What a broker tells of a topic with one partition."""

    def __init__(self, settings: Settings) -> None:
        endpoint = Endpoint(service_url="pulsar://none", admin_url="http://none")
        self.options = Options.parse(source_options(settings, endpoint, EVENTS))
        self.missing, self.left_out, self.acknowledged = [], {}, 0
        self.admin: Any = self

    def has(self, sent: int) -> None:
        cursors = {EVENTS.subscription: {"markDeletePosition": f"7:{self.acknowledged - 1}"}}
        partition = f"{self.options.topics[0]}-partition-0"
        self.held = {partition: Held([Ledger(7, sent, sent)], cursors, Position(7, sent - 1), 7, "today")}

    def readable_end(self, partition: str) -> None:
        return None

    def acknowledge(self, partition: str, subscription: str, position: Position) -> None:
        self.acknowledged = position.entry + 1


def create_table(lake: Any, topic: Topic, plan: Plan) -> None:
    created = json.dumps(creation_times(held_by(plan)))
    properties = {**EACH_TABLE, **bronze_table(topic).properties, CREATED: created}
    path = lake.settings.table_path(TABLE)
    DeltaTable.create(
        path, ROWS, partition_by=["publish_date"], configuration=properties, raise_if_key_not_exists=False
    )


def messages(settings: Settings, endpoint: Endpoint, plan: Plan, ranges: Sequence[Range]) -> pa.Table:
    entries = [entry for each in ranges for span in each.spans for entry in range(span.first, span.last + 1)]
    place = {"topic": "events", "partition": 0, "ledger_id": 7, "batch_index": -1, "publish_time": 0}
    return pa.Table.from_pylist([{**place, "entry_id": entry} for entry in entries], ARROW_SCHEMA)


class Recorder:
    """Notes what the product does, as the steps of the model; after so many, the process is killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.left: int | None = None
        self._patch = monkeypatch

    def note(self, does: str) -> None:
        self.steps.append(does)
        if self.left is not None and does != "a message is sent":
            self.left -= 1
            if not self.left:
                raise KilledError

    def watch(self, module: Any, name: str, told: Callable[..., str | None]) -> None:
        function = getattr(module, name)

        def done(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if does := told(*args, **kwargs):
                self.note(does)
            return result

        self._patch.setattr(module, name, done)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder(monkeypatch)

    def is_lease(lock: object, table: str, until: float, *, whoever_has_it: bool) -> str | None:
        return None if whoever_has_it else "A takes the lease of bronze"

    found.watch(leases, "_wait_for", is_lease)
    found.watch(batches, "_create", lambda _, stream, file, *lines: CREATES.get(file.partition("/")[0]))
    found.watch(small_backlogs, "append_batch", lambda *_, **__: "A commits to bronze")
    found.watch(small_backlogs, "acknowledge", lambda *_: "A acknowledges")
    found.watch(borrowing, "_held", lambda *_: "A sends its lease")
    monkeypatch.setattr(small_backlogs, "create_bronze_table", create_table)
    monkeypatch.setattr(small_backlogs, "_read", messages)
    monkeypatch.setattr(small_backlogs, "batch_context", lambda _: "{}")
    monkeypatch.setattr(small_backlogs, "ensure_subscriptions", lambda _: None)
    return found


CREATES = {"offsets": "A writes offsets", "commits": "A writes commits"}


def land(settings: Settings, broker: Broker) -> int | None:
    lake: Any = SimpleNamespace(settings=settings, spark=None)
    reach: Any = SimpleNamespace(topic=EVENTS, endpoint=None, plan=lambda: broker)
    return small_backlogs._land(lake, reach, Permit())


def left(settings: Settings, broker: Broker) -> tuple[object, ...]:
    """What the run has left: its last batch in offsets, commits and the table; the rows, and what is acknowledged."""
    checkpoint = Path(settings.checkpoint_path(TABLE))
    ends = [
        max((int(each.name) for each in (checkpoint / log).glob("[0-9]*")), default=-1)
        for log in ("offsets", "commits")
    ]
    rows = tuple(row["entry_id"] for row in sorted(read(settings, TABLE), key=lambda row: row["entry_id"]))
    stream = batches.stopped_after(settings, TABLE)
    metadata = checkpoint / "metadata"
    id = json.loads(metadata.read_text())["id"] if metadata.exists() else ""
    in_table = stored_table(settings, TABLE).transaction_version(id) if rows else None
    assert stream is None or stream.stream == id
    return (*ends, -1 if in_table is None else in_table, rows, broker.acknowledged)


def modelled(world: World) -> tuple[object, ...]:
    held = world.checkpoint
    ends = (held.planned, held.done) if held else (-1, -1)
    return (*ends, world.bronze.batch, world.bronze.rows, world.acknowledged)


def run(settings: Settings, recorder: Recorder, broker: Broker) -> None:
    """A command that lands what one message after the other brings, with a JVM of its own."""
    with suppress(KilledError):
        broker.has(1)
        recorder.note("a message is sent")
        with write_lease(settings, [TABLE]):
            assert land(settings, broker) == 1
            broker.has(2)
            recorder.note("a message is sent")
            assert land(settings, broker) == 1


STEPS = ["A writes offsets", "A commits to bronze", "A writes commits", "A acknowledges"]
WHOLE = ["a message is sent", "A takes the lease of bronze", *STEPS, "a message is sent", *STEPS]


def test_a_run_without_spark_is_one_of_the_model(settings: Settings, tmp_path: Path, recorder: Recorder) -> None:
    own = own_home(settings, tmp_path)
    run(own, recorder, Broker(own))
    assert recorder.steps == WHOLE
    assert worlds_after(model_of(LANDING), recorder.steps, shows=shown)


@pytest.mark.parametrize("killed_after", range(1, len(WHOLE) - 1))
def test_a_run_that_is_killed_leaves_what_the_model_has(
    settings: Settings, tmp_path: Path, recorder: Recorder, killed_after: int
) -> None:
    own = own_home(settings, tmp_path)
    broker, recorder.left = Broker(own), killed_after
    run(own, recorder, broker)
    worlds = worlds_after(model_of(LANDING), [*recorder.steps, "A is killed"], shows=shown)
    assert {modelled(world) for world in worlds} == {left(own, broker)}


def test_what_has_begun_is_left_to_spark(settings: Settings, tmp_path: Path, recorder: Recorder) -> None:
    """As is a table that is ahead of the checkpoint: the next batch would append what is there."""
    own = own_home(settings, tmp_path)
    broker, recorder.left = Broker(own), len(STEPS) + 3  # killed once the second batch is committed
    run(own, recorder, broker)
    before = left(own, broker)
    assert land(own, broker) is None
    Path(own.checkpoint_path(TABLE), "offsets", "1").unlink()
    broker.has(3)
    assert land(own, broker) is None
    assert left(own, broker)[2:] == before[2:]


def test_a_jvm_of_ones_own_holds_the_lease_as_long_as_it_lives(settings: Settings, tmp_path: Path) -> None:
    own, environment = own_home(settings, tmp_path), {"PATH": os.environ["PATH"]}
    with write_lease(own, [TABLE]) as lease:
        jvm = launch(
            [sys.executable, "-c", JVM],
            environment,
            answer=tmp_path / "gateway",
            log=tmp_path / "log",
            inherited=lease.files,
        )
    with pytest.raises(BusyError), write_lease(own, [TABLE]):
        pass
    jvm.kill()
    jvm.wait()
    with write_lease(own, [TABLE]):
        pass


def test_spark_is_started_with_the_lease(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Sequence[int]] = []

    def refuse(*_: object, inherited: Sequence[int], **__: object) -> None:
        given.append(inherited)
        raise OSError("not started")

    monkeypatch.setattr(session, "launch", refuse)
    with write_lease(own_home(settings, tmp_path), [TABLE]) as lease:
        with pytest.raises(OSError, match="not started"):
            session._launched({}, lease.files, settings)
        assert given == [lease.files]


@pytest.fixture
def engine(settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    """A home with an engine."""
    home = own_home(settings, tmp_path).model_copy(update={"engine": Engine()})
    control.start(home)
    yield home
    control.stop(home)


@pytest.mark.parametrize("is_well", [True, False])
def test_a_loan_is_one_of_the_model(engine: Settings, recorder: Recorder, is_well: bool) -> None:
    with write_lease(engine, [TABLE]) as lease:
        recorder.note("A asks the engine")
        loan = borrowing.borrow(control.folder(engine), wanted(engine.home), lease.files)
        assert loan
    recorder.note("A frees its lease" if is_well else "A is interrupted")
    with pytest.raises(BusyError), write_lease(engine, [TABLE]):
        pass
    recorder.note("A gives its JVM back")
    loan.give_back(is_well=is_well)
    recorder.note("A ends")
    with write_lease(engine, [TABLE]):
        pass
    steps = ["a message is sent", *recorder.steps]
    assert steps[-1] == "A takes the lease of bronze"
    scope = Scope(commands=("land",), writers=("A",))
    assert worlds_after(model_of(scope), steps, shows=shown)


def test_a_spark_that_may_not_hold_the_lease_is_not_used(tmp_path: Path) -> None:
    """The engine ends, or is killed, before it has said that it does."""
    ours, theirs = socket.socketpair()

    def take_and_end() -> None:
        close(receive(theirs)[1])
        theirs.close()

    threading.Thread(target=take_and_end).start()
    told = {"pid": 1, "port": 1, "secret": ""}
    with (tmp_path / "lease").open("a") as lease:
        assert borrowing._held(ours, os.getpid(), told, [lease.fileno()]) is None
