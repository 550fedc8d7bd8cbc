"""Retries of streams, and `lakehouse run --every`, which runs until it is ended."""

import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.errors import BusyError, LakehouseError, PermanentError
from pulsar_lakehouse.jobs.maintenance import Maintained, maintain
from pulsar_lakehouse.jobs.new_data import Look
from pulsar_lakehouse.jobs.steps import enriching, landing, merging
from pulsar_lakehouse.jobs.streams import Stream, _line, catch_up, keep_up
from pulsar_lakehouse.leases.leases import Lease
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.records import StepRecord, keep_step, step_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.jobs.test_crashes import ended, is_free, start, wait_until
from tests.lake import expected, land_literally, messages, own_home, own_topics, tables
from tests.messages import item, message, order, user
from tests.oracle import Message, Oracle
from tests.shop import ENRICHMENTS, ENTITIES, TOPICS, WRITTEN

NO_LEASE = Lease(command="", kind="step")


def test_the_command_that_accepts_a_loss_has_the_declared_name() -> None:
    lost = "persistent://public/shop/orders-eu-partition-0 after 1:2 up to 3:4: the broker has deleted 3:0"
    error = RuntimeError(f"PulsarSourceError: {lost}; failOnDataLoss=false goes on")
    way_on = "`lakehouse land orders --accept-loss` writes that down and goes on"
    assert _line("land orders", error) == f"land orders: {lost}; {way_on}"


@pytest.mark.parametrize(("retries", "error"), [(1, None), (0, "^texts: it was busy$")])
def test_what_fails_before_a_stream_starts_is_tried_again(
    lake: Lake, tmp_path: Path, retries: int, error: str | None
) -> None:
    failures = [PySparkException("it was busy")]

    def stream() -> DataStreamWriter:
        if failures:
            raise failures.pop()
        return lake.spark.readStream.text(str(tmp_path)).writeStream.format("noop")

    run = lake.settings.run.model_copy(update={"retries": retries, "retry_delay": 0})
    with pytest.raises(LakehouseError, match=error) if error else nullcontext():
        outcomes = catch_up(lake.settings.model_copy(update={"run": run}), [Stream("texts", stream)])
        assert [(outcome.name, outcome.rows) for outcome in outcomes] == [("texts", 0)]


def test_a_busy_machine_gets_more_time_with_each_retry(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And then one whose broker was away gets the usual time."""
    late = "org.apache.spark.SparkException: Python worker failed to connect back."
    failures = ["it was away", *([late] * 3)]
    slept: list[float] = []
    monkeypatch.setattr("pulsar_lakehouse.jobs.streams.time.sleep", slept.append)

    def stream() -> DataStreamWriter:
        if failures:
            raise PySparkException(failures.pop())
        return lake.spark.readStream.text(str(tmp_path)).writeStream.format("noop")

    catch_up(own_home(lake.settings, tmp_path), [Stream("texts", stream)])
    assert slept[:4] == [10, 20, 40, 10]


def test_a_backlog_in_bronze_is_read_in_several_batches(lake: Lake, tmp_path: Path) -> None:
    run = lake.settings.run.model_copy(update={"max_bytes_per_batch": 1})
    project = own_home(lake.settings, tmp_path).model_copy(update={"run": run})
    for place in range(3):  # a file of each topic
        land_literally(
            Lake(lake.spark, project), [user(place, place=place), item(place, place=place), order(place, place=place)]
        )
    for streams in (merging(Lake(lake.spark, project), ENTITIES), enriching(Lake(lake.spark, project), ENRICHMENTS)):
        catch_up(project, streams)
    steps = ("merge users", "merge items", "enrich orders")
    assert [step_record(project, step).batches for step in steps] == [3, 3, 3]
    assert tables(project) == expected(Oracle().run(messages(project)))


@pytest.mark.long
def test_what_is_read_again_in_several_batches_is_placed_once(lake: Lake, tmp_path: Path) -> None:
    """By a process that has placed all of it before, and so knows later messages to be new."""
    run = lake.settings.run.model_copy(update={"max_bytes_per_batch": 1})  # a batch for each file
    project = own_home(lake.settings, tmp_path).model_copy(update={"run": run})

    def land(*files: Message) -> None:
        for each in files:
            land_literally(Lake(lake.spark, project), [each])

    land(user(1), item(1), order(1, place=1), order(1, place=2), message("orders", b"junk", key="9", place=3))
    catch_up(project, merging(Lake(lake.spark, project), ENTITIES))
    streams = enriching(Lake(lake.spark, project), ENRICHMENTS)
    catch_up(project, streams)
    land(order(1, place=4), message("orders", b"junk", key="9", place=5))
    catch_up(project, streams)
    shutil.rmtree(project.checkpoint_path(ENRICHMENTS[0].gold_table))
    land(order(1, place=6))
    catch_up(project, streams)
    assert tables(project) == expected(Oracle().run(messages(project)))


@pytest.mark.parametrize(
    "error",
    [PermanentError("the schema has changed"), BusyError("it is busy"), PySparkException("no heap"), KeyError("name")],
)
def test_a_step_that_can_not_start_has_failed(settings: Settings, tmp_path: Path, error: Exception) -> None:
    def stream() -> DataStreamWriter:
        raise error

    run = settings.run.model_copy(update={"retries": 0})
    project = own_home(settings, tmp_path).model_copy(update={"run": run})
    with pytest.raises((LakehouseError, KeyError)):
        catch_up(project, [Stream("land orders", stream)])
    assert step_record(project, "land orders") == StepRecord(
        step="land orders", failures=1, failure=f"land orders: {error}"
    )


@pytest.mark.parametrize("part", ["at_once", "caught_up"])
def test_what_is_done_beside_a_stream_can_fail_the_step(lake: Lake, tmp_path: Path, part: str) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'get'")

    def stream() -> DataStreamWriter:
        return lake.spark.readStream.text(str(tmp_path)).writeStream.format("noop")

    streams = {
        "at_once": Stream("land orders", stream, at_once=fail),
        "caught_up": Stream("land orders", stream, caught_up=fail),
    }
    project = own_home(lake.settings, tmp_path)
    with pytest.raises(AttributeError):
        catch_up(project, [streams[part]])
    record = step_record(project, "land orders")
    assert (record.failures, record.failure) == (1, "land orders: 'NoneType' object has no attribute 'get'")


def test_a_step_whose_streams_can_not_be_made_has_failed(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pulsar_lakehouse.jobs.steps.healthy_endpoint", refuse)
        with pytest.raises(LakehouseError):
            landing(own, [ENTITIES[0].topic])
    step = f"land {ENTITIES[0].name}"
    assert step_record(own.settings, step) == StepRecord(step=step, failures=1, failure=f"{step}: no broker")


def refuse(*_: object) -> None:
    raise LakehouseError("no broker")


@pytest.mark.parametrize(
    ("failing", "done"),
    [
        pytest.param(1, StepRecord(step="texts", rows=2, batches=1, retries=1), id="tried again"),
        pytest.param(2, StepRecord(step="texts", retries=1, failures=1, failure="texts: "), id="given up"),
    ],
)
def test_the_work_of_a_step_is_recorded(lake: Lake, tmp_path: Path, failing: int, done: StepRecord) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    texts.joinpath("a.txt").write_text("one\ntwo\n")
    failures = [ValueError("it was busy")] * failing
    retries: list[str] = []

    def write(batch: DataFrame, number: int) -> None:
        batch.count()
        retries.append(step_record(project, "texts").retry)
        if failures:
            raise failures.pop()

    def stream() -> DataStreamWriter:
        read = lake.spark.readStream.text(str(texts)).writeStream.foreachBatch(write)
        return read.option("checkpointLocation", str(tmp_path / "checkpoint"))

    run = lake.settings.run.model_copy(update={"retries": 1, "retry_delay": 0})
    project = own_home(lake.settings, tmp_path).model_copy(update={"run": run})
    with pytest.raises(LakehouseError) if done.failure else nullcontext():
        catch_up(project, [Stream("texts", stream)])
    record = step_record(project, "texts")
    assert (record.seconds > 0, record.batch_at > 0) == (not done.failure, not done.failure)
    assert replace(record, seconds=0.0, batch_at=0.0, failure=record.failure[:7]) == done
    assert [each[:7] for each in retries] == ["", "texts: "]


@pytest.mark.parametrize(
    ("looks", "rest", "rounds"),
    [
        pytest.param("aaabb", 60, "1a2a 1a2a 1b2b", id="until something has changed"),
        pytest.param("a??", 60, "1a2a 1?2? 1?2?", id="if one can't look"),
        pytest.param("aaa", 0, "1a2a 1a2a 1a2a", id="after the rest"),
    ],
)
def test_a_round_that_finds_nothing_is_not_repeated(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    looks: str,
    rest: float,
    rounds: str,
) -> None:
    monkeypatch.setattr("pulsar_lakehouse.jobs.pacing.REST_SECONDS", rest)
    texts = tmp_path / "texts"
    texts.mkdir()
    texts.joinpath("a.txt").write_text("one\ntwo\n")
    seen = ""
    made: list[str] = []

    def stream(name: str) -> DataStreamWriter:
        made.append(f"{name}{seen[-1]}")
        read = lake.spark.readStream.text(str(texts)).writeStream.format("noop")
        return read.option("checkpointLocation", str(tmp_path / name))

    def look() -> Look:
        nonlocal seen
        if seen == looks:
            raise KeyboardInterrupt
        seen += looks[len(seen)]
        if seen[-1] == "?":
            raise LakehouseError("the broker does not answer")
        return {"texts": seen[-1]}

    with pytest.raises(KeyboardInterrupt):
        keep_up(
            lake.settings, [[Stream(name, partial(stream, name))] for name in "12"], every=0, look=look, lease=NO_LEASE
        )
    assert made == re.findall(r"\d.", rounds)


def test_what_is_left_out_is_told_once_and_stays_recorded(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first failure that can be blamed on a part of what is read is not tried again. The second round is."""
    failures, rounds = {1: "orders-us can't be read", 2: "it was busy"}, 0
    run = lake.settings.run.model_copy(update={"retry_delay": 0})
    project = own_home(lake.settings, tmp_path).model_copy(update={"run": run})

    def look() -> Look:
        nonlocal rounds
        rounds += 1
        if rounds > 2:
            raise KeyboardInterrupt
        return {"texts": str(rounds)}

    def stream() -> DataStreamWriter:
        if failure := failures.pop(rounds, ""):
            raise PySparkException(failure)
        return lake.spark.readStream.text(str(tmp_path)).writeStream.format("noop")

    left_out = "orders-us can't be read"
    each = Stream("land orders", stream, blame=lambda why: why == left_out, left_out=lambda: left_out)
    with pytest.raises(KeyboardInterrupt):
        keep_up(project, [[each]], every=0, look=look, lease=NO_LEASE)
    record, line = step_record(project, "land orders"), f"land orders: {left_out}"
    assert (record.failures, record.retries, record.failure, record.retry) == (1, 1, line, "")
    assert capsys.readouterr().err.splitlines().count(line) == 1


def test_state_rests_while_there_are_facts(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsar_lakehouse.jobs.pacing.STATE_RESTS", 1000.0)
    monkeypatch.setattr("pulsar_lakehouse.jobs.pacing.STATE_REST_SECONDS", 1000.0)
    texts = tmp_path / "texts"
    texts.mkdir()
    made: list[str] = []
    arriving = iter(["fact", "fact", "", "", ""])

    def stream(name: str) -> DataStreamWriter:
        made.append(name)
        read = lake.spark.readStream.text(str(texts)).writeStream.format("noop")
        return read.option("checkpointLocation", str(tmp_path / name))

    def look() -> Look:
        text = next(arriving, None)
        if text is None:
            raise KeyboardInterrupt
        made.append(f"{text}:")
        if text:
            (texts / f"{len(made)}.txt").write_text(text)
        return {"texts": text}

    state, facts = ([[Stream(name, partial(stream, name))]] for name in ("state", "facts"))
    with pytest.raises(KeyboardInterrupt):
        keep_up(lake.settings, facts, state=state, every=0, look=look, lease=NO_LEASE)
    assert " ".join(made) == "fact: state facts fact: facts : facts : state facts : state facts"


@pytest.mark.parametrize(
    ("found", "rows", "record"),
    [
        pytest.param(3, 3, StepRecord(step="texts", rows=3, batches=1), id="it reads all"),
        pytest.param(0, 0, StepRecord(step="texts"), id="there is nothing"),
        pytest.param(None, 2, StepRecord(step="texts", rows=2, batches=1), id="it leaves all to the stream"),
    ],
)
def test_what_can_be_read_at_once_needs_no_stream(
    lake: Lake, tmp_path: Path, found: int | None, rows: int, record: StepRecord
) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    texts.joinpath("a.txt").write_text("one\ntwo\n")
    ended: list[str] = []

    def stream() -> DataStreamWriter:
        return lake.spark.readStream.text(str(texts)).writeStream.format("noop")

    project = own_home(lake.settings, tmp_path)
    each = Stream("texts", stream, caught_up=lambda: ended.append("yes"), at_once=lambda _: found)
    keep_step(project, StepRecord(step="texts", failure="texts: it was busy", retry="texts: it was busy"))
    assert [outcome.rows for outcome in catch_up(project, [each])] == [rows]
    told = step_record(project, "texts")
    assert (replace(told, seconds=0.0, batch_at=0.0), ended) == (record, ["yes"])
    assert (told.seconds > 0) == (rows > 0)


@pytest.mark.parametrize("ends", [PermanentError("the schema has changed"), KeyboardInterrupt()])
def test_what_is_read_at_once_is_not_written_after_the_step(
    settings: Settings, tmp_path: Path, ends: BaseException
) -> None:
    """Because another process may write the table then."""
    reads, is_over = threading.Event(), threading.Event()
    done: Future[str] = Future()

    def read(permit: Permit) -> int | None:
        reads.set()
        is_over.wait(60)
        try:
            with permit.used():
                done.set_result("written")
        except CancelledError:
            done.set_result("refused")
        return None

    def stream() -> DataStreamWriter:
        reads.wait(60)
        raise ends

    with pytest.raises(type(ends)):
        catch_up(own_home(settings, tmp_path), [Stream("slow", stream, at_once=read), Stream("bad", stream)])
    is_over.set()
    assert done.result(60) == "refused"


@pytest.mark.parametrize(
    ("kept_for", "created"),
    [
        pytest.param(None, "round 1 2 retry round 3", id="each time"),
        pytest.param(lambda: "the same", "round 1 retry", id="only after a failure"),
        pytest.param(iter([1, 1, 1, 2]).__next__, "round 1 retry round 3", id="or for something else"),
    ],
)
def test_when_a_stream_is_created(
    lake: Lake, tmp_path: Path, kept_for: Callable[[], object] | None, created: str
) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    made: list[str] = []
    read: list[int] = []
    failures = [ValueError("it was busy")]
    moments = iter(["round 1", "2", "round 3"])
    moment = ""

    def write(batch: DataFrame, number: int) -> None:
        nonlocal moment
        if moment == "2" and failures:
            moment = "retry"
            raise failures.pop()
        read.append(batch.count())

    def stream() -> DataStreamWriter:
        made.append(moment)
        lines = lake.spark.readStream.text(str(texts)).writeStream.foreachBatch(write)
        return lines.option("checkpointLocation", str(tmp_path / "checkpoint"))

    def look() -> Look:
        nonlocal moment
        moment = next(moments, "")
        if not moment:
            raise KeyboardInterrupt
        texts.joinpath(f"{moment}.txt").write_text("one\n")
        return {"texts": moment}

    run = lake.settings.run.model_copy(update={"retry_delay": 0})
    project = own_home(lake.settings, tmp_path).model_copy(update={"run": run})
    with pytest.raises(KeyboardInterrupt):
        keep_up(project, [[Stream("texts", stream, kept_for=kept_for)]], every=0, look=look, lease=NO_LEASE)
    assert (" ".join(made), read) == (created, [1, 1, 1])


def test_rows_are_told_once_where_there_is_no_terminal(
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("pulsar_lakehouse.jobs.streams.LOG_SECONDS", 0)
    texts = tmp_path / "texts"
    texts.mkdir()
    looks = 0

    def stream() -> DataStreamWriter:
        read = lake.spark.readStream.text(str(texts)).writeStream.format("noop")
        return read.option("checkpointLocation", str(tmp_path / "checkpoint"))

    def look() -> Look:
        nonlocal looks
        looks += 1
        if looks == 4:
            raise KeyboardInterrupt
        if looks == 2:
            texts.joinpath("a.txt").write_text("one\ntwo\n")
        return {"texts": looks}

    with pytest.raises(KeyboardInterrupt):
        keep_up(lake.settings, [[Stream("texts", stream)]], every=0, look=look, lease=NO_LEASE)
    assert capsys.readouterr().err.splitlines() == ["Running; Ctrl-C ends it", "texts 2"]


def test_rounds_leave_no_threads(lake: Lake, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    threads: list[int] = []
    batches: list[int] = []

    def stream() -> DataStreamWriter:
        read = lake.spark.readStream.text(str(texts)).writeStream.foreachBatch(lambda _, number: batches.append(number))
        return read.option("checkpointLocation", str(tmp_path / "checkpoint"))

    def look() -> Look:
        threads.append(threading.active_count())
        if len(threads) == 12:
            raise KeyboardInterrupt
        texts.joinpath(f"{len(threads)}.txt").write_text("one\n")
        return {"texts": len(threads)}

    with pytest.raises(KeyboardInterrupt):
        keep_up(lake.settings, [[Stream("texts", stream)]], every=0, look=look, lease=NO_LEASE)
    assert batches == list(range(11))
    assert threads[-1] <= threads[3] + 2


def test_a_long_batch_shows_life(lake: Lake, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    texts.joinpath("a.txt").write_text("one\n")
    beat = threading.Event()
    heard: list[bool] = []

    def write(batch: DataFrame, number: int) -> None:
        beat.clear()
        heard.append(beat.wait(60))

    def stream() -> DataStreamWriter:
        read = lake.spark.readStream.text(str(texts)).writeStream.foreachBatch(write)
        return read.option("checkpointLocation", str(tmp_path / "checkpoint"))

    def look() -> Look:
        if heard:
            raise KeyboardInterrupt
        return {}

    streams = [Stream("texts", stream)]
    with pytest.raises(KeyboardInterrupt):
        keep_up(own_home(lake.settings, tmp_path), [streams], every=0, look=look, lease=NO_LEASE, beat=beat.set)
    assert heard == [True]


def test_a_long_pause_shows_life(lake: Lake) -> None:
    beats = iter(range(3))

    def beat() -> None:
        if next(beats, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_up(lake.settings, [], every=60, look=dict, lease=NO_LEASE, beat=beat)


def test_torn_checkpoints_lose_nothing_and_double_nothing(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = lake.settings.run.model_copy(update={"retries": 0})
    project = own_home(lake.settings, tmp_path).model_copy(update={"run": run})
    sent = [
        [user(1), item(1), order(1, place=1), order(2, place=2, user=2), message("users", b"", key="3", place=9)],
        [user(2, place=1), item(1, when=1, place=1), item(2, place=2), order(1, place=3), order(3, place=4)],
    ]
    tears = [Path(project.checkpoint_path(name)) for name in ("silver.users/metadata", "silver.items/offsets/0")]
    tears.append(Path(project.checkpoint_path("gold.enriched_orders/commits/0")))
    for messages_sent in sent:
        land_literally(Lake(lake.spark, project), messages_sent)
        catch_up(project, merging(Lake(lake.spark, project), ENTITIES))
        catch_up(project, enriching(Lake(lake.spark, project), ENRICHMENTS))
        said = capsys.readouterr().err
        for tear in tears:
            tear.write_bytes(b"")
    assert tables(project) == expected(Oracle().run([*sent[0], *sent[1]]))
    assert [f"{tear}: torn: the checkpoint" in said for tear in tears] == [True, True, True]


STEADY = Workload(
    users=100, orders=500, late_users=0.2, updated_users=0, deleted_users=0, merged_users=0, malformed=0.05
)
"""Each user has only one state, so it does not matter when an order is joined with it."""


def holds(project: Settings, sent: int) -> bool:
    landed = messages(project)
    return len(landed) == sent and tables(project) == expected(Oracle().run(landed))


def keep_maintained(project: Settings, until: threading.Event) -> list[Maintained]:
    done: list[Maintained] = []
    is_last = False
    while not is_last:
        is_last = until.wait(1)
        done += maintain(project)
    return done


@pytest.mark.long
def test_a_pipeline_that_runs_on_takes_what_comes_beside_maintenance_until_it_is_ended(
    settings: Settings, endpoint: Endpoint, tmp_path: Path
) -> None:
    project = own_topics(settings, endpoint, tmp_path)
    sent, has_ended = 0, threading.Event()
    with ThreadPoolExecutor() as pool, ended(start(project, "run", "--every", "1s")) as running:
        maintenance = pool.submit(keep_maintained, project, has_ended)
        try:
            first, late = (
                [(topic, list(phase(topic.name))) for topic in TOPICS] for phase in (STEADY.first, STEADY.late)
            )
            halves = ([(topic, found[half::2]) for topic, found in first] for half in (0, 1))
            for part in (*halves, late):  # what lands at once is one file
                sent += sum(produce(part, endpoint, project).values())
                wait_until(partial(holds, project, sent), poll=1)
            beside = start(project, "reconcile")
            assert (beside.wait(300), (project.home / "reconcile.log").read_text().count("holds")) == (0, 3)
            assert running.poll() is None
        finally:
            has_ended.set()
        done = maintenance.result()
    assert running.returncode == 130
    log = (project.home / "run.log").read_text()
    assert [word for word in ("Traceback", "retry") if word in log] == []
    assert {each.busy for each in done} == {""}
    compacted = {each.table for each in done if each.compacted}
    assert {"bronze.orders", "silver.users", "gold.enriched_orders"} <= compacted
    assert is_free(project, WRITTEN)
