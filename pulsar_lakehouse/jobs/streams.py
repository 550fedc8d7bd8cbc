"""Run streams until they have caught up, or forever, and retry them after transient failures."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.status import Status
from rich.text import Text

from pulsar_lakehouse.errors import (
    BrokerError,
    ConfigurationError,
    DeclarationsError,
    LakehouseError,
    PermanentError,
    SourceError,
)
from pulsar_lakehouse.jobs.lineage.flows import Flow
from pulsar_lakehouse.jobs.lineage.runs import StepRuns
from pulsar_lakehouse.jobs.new_data import Look
from pulsar_lakehouse.jobs.pacing import Rounds
from pulsar_lakehouse.leases.leases import Lease
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.progress import CONSOLE, spinner
from pulsar_lakehouse.records import keep_failure, keep_step, step_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.batches import frozen_modules
from pulsar_lakehouse.spark.error_causes import ACCEPTS_LOSS, cause_of, is_of_busy_machine, is_permanent
from pulsar_lakehouse.spark.session import drop_idle_callbacks

FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.02, 0.2
"""Seconds between two looks at whether a step has ended: at first, and at most, as a look costs a millisecond."""
LOG_SECONDS = 60.0
"""Seconds between two progress lines where there is no terminal."""

THREADS = ThreadPoolExecutor(8, "at once")
"""Where streams try what they can do without Spark. They share the cores, so a ninth waits for one of them."""


@dataclass(frozen=True)
class Stream:
    name: str
    """What it does, and with what, such as `land orders`."""
    create: Callable[[], DataStreamWriter] | None
    """Creates the stream from the tables as they are now. None if `at_once` reads all that there is."""
    flow: Flow | None = None
    """What it reads and writes, for lineage."""
    caught_up: Callable[[], None] = lambda: None
    """Called each time when it has read everything available."""
    at_once: Callable[[Permit], int | None] | None = None
    """Reads everything available without Spark, if that is little: the number of rows, or None if Spark must read it.

    It writes only while it has the permit.
    """
    kept_for: Callable[[], object] | None = None
    """While this gives the same value, it starts again as it was created, once it has caught up."""
    prepare: Callable[[], None] = lambda: None
    """Called each time before it starts, once its tables are ready, unless it reads at once."""
    blame: Callable[[str], bool] = lambda why: False
    """Called with why it failed: whether it can go on at once without what has failed."""
    left_out: Callable[[], str] = lambda: ""
    """Why it has not read all that it should, once it has caught up; empty if it has."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    name: str
    rows: int
    """Rows read: messages, or changes of tables."""
    seconds: float


def catch_up(
    settings: Settings, streams: Sequence[Stream], *, refused: list[ConfigurationError] | None = None
) -> list[Outcome]:
    """Run streams side by side until they have read everything available.

    A stream that fails is retried up to `run.retries` times without progress. Then LakehouseError has the cause;
    PermanentError is raised at once if a retry can't help. A stream whose tables can't follow their declaration does
    not start, and the others go on: its error is raised at the end, or is added to `refused`.
    """
    step, errors = [_Supervised(stream, settings) for stream in streams], list[ConfigurationError]()
    with _started(step, errors) as running, spinner(", ".join(each.name for each in running or step)):
        done = _until_caught_up(running)
    if refused is None:
        raise_all(errors)
    else:
        refused += errors
    return done


def raise_all(errors: Sequence[ConfigurationError]) -> None:
    """Raises ConfigurationError with all their lines, if there are any."""
    if errors:
        raise errors[0] if len(errors) == 1 else DeclarationsError([str(each) for each in errors])


def keep_up(
    settings: Settings,
    steps: Sequence[Sequence[Stream]],
    *,
    state: Sequence[Sequence[Stream]] = (),
    every: float,
    look: Callable[[], Look],
    lease: Lease,
    beat: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Let steps catch up in turn, with a round every `every` seconds, until KeyboardInterrupt.

    Steps take turns because they share the same cores, and because later ones read what earlier ones have written. The
    steps of `state` come first, but not in each round: as long as the others have something to read, they rest for
    `STATE_RESTS` times as long as they took, so that most facts needn't wait for them.
    Between two rounds, the tables of `lease` are lent to maintenance and checks.
    After a round that read no rows, the next one waits until `look` returns another value or fails, but at most
    `REST_SECONDS`. Failures are retried as in `catch_up`, and counted for each round.
    `beat` is called again and again, also while a batch, a pause, maintenance or a check lasts long.
    """
    changelogs, facts = (
        [[_Supervised(stream, settings, in_rounds=True) for stream in step] for step in given]
        for given in (state, steps)
    )
    rounds = Rounds(every=every)
    with frozen_modules(), spinner("Running; Ctrl-C ends it") as status:
        tell = _teller(status, [each for step in (*changelogs, *facts) for each in step], beat)
        while True:
            began = time.monotonic()
            seen = _seen(look)
            if rounds.is_due(at=began, seen=seen):
                changes = None
                if rounds.is_state_due(at=began):
                    changes = _rows_of_round(changelogs, tell)
                    rounds.state_ended(began=began, ended=time.monotonic())
                rows = _rows_of_round(facts, tell)
                drop_idle_callbacks()
                rounds.round_ended(at=time.monotonic(), seen=seen, changes=changes, facts=rows)
            tell()
            with lease.lent(beat):
                _rest(rounds.pause(began=began, ended=time.monotonic()), beat)


@contextmanager
def failures_noted(settings: Settings, steps: Iterable[str]) -> Iterator[None]:
    """Records why these steps failed, if the block raises an error: it makes their streams, or does their work."""
    try:
        yield
    except Exception as error:
        for step in steps:
            keep_failure(settings, step, _line(step, error))
        raise


def _line(step: str, error: Exception) -> str:
    """What is recorded and told of a failure of the step."""
    why = str(error) if isinstance(error, LakehouseError) else _cause(step, error)
    return f"{step}: {why.removeprefix(f'{step}: ')}"


def _cause(step: str, error: Exception) -> str:
    """The most helpful line on an error of the step."""
    return cause_of(error).replace(ACCEPTS_LOSS, f"`lakehouse {step} --accept-loss`")


def _rows_of_round(steps: Sequence[Sequence["_Supervised"]], tell: Callable[[], None]) -> int:
    rows = 0
    for step in steps:
        with _started(step, []) as running:
            rows += sum(outcome.rows for outcome in _until_caught_up(running, tell))
    return rows


def _rest(seconds: float, beat: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        beat()
        time.sleep(min(left, 1.0))


def _teller(status: Status, streams: Sequence["_Supervised"], beat: Callable[[], None]) -> Callable[[], None]:
    """A function that shows how many rows streams have read, and calls `beat`.

    It does so live on a terminal, elsewhere as a line when the numbers have changed, at most every `LOG_SECONDS`.
    """
    said, at = "", -LOG_SECONDS

    def tell() -> None:
        nonlocal said, at
        beat()
        counts = " · ".join(f"{each.name} {each.rows:,}" for each in streams)
        status.update(Text(f"Running; Ctrl-C ends it. {counts}"))
        is_news = counts != said and any(each.rows for each in streams)
        if is_news and not CONSOLE.is_terminal and time.monotonic() - at > LOG_SECONDS:
            CONSOLE.say(counts)
            said, at = counts, time.monotonic()

    return tell


def _seen(look: Callable[[], Look]) -> Look | None:
    try:
        return look()
    except Exception:  # such as an absent broker or a torn log: a round reports it better
        return None


def _until_caught_up(step: Sequence["_Supervised"], tell: Callable[[], None] = lambda: None) -> list[Outcome]:
    started = time.monotonic()
    active, done = list(step), list[Outcome]()
    while active:
        for each in list(active):
            if not each.is_active():
                active.remove(each)
                done.append(Outcome(name=each.name, rows=each.new_rows, seconds=time.monotonic() - started))
        tell()
        lasted = time.monotonic() - started
        time.sleep(min(max(FIRST_POLL_SECONDS, lasted / 20), LAST_POLL_SECONDS))
    return done


@contextmanager
def _started(step: Sequence["_Supervised"], refused: list[ConfigurationError]) -> Iterator[list["_Supervised"]]:
    """Start the streams, and stop them all if one fails. An interrupt ends the JVM, and so the streams.

    Those whose tables can't follow their declaration do not start: their errors are added to `refused`.
    """
    started: list[_Supervised] = []
    try:
        for each in step:
            started.append(each)
            try:
                each.start()
            except ConfigurationError as error:
                started.remove(each)
                refused.append(error)
        yield started
    except (Exception, KeyboardInterrupt) as error:
        for each in started:
            each.stop(query=not isinstance(error, KeyboardInterrupt))
        raise


class _Supervised:
    """A streaming query that reads everything available, and is restarted after transient failures.

    Before it, a thread tries to read what there is without it.
    """

    _thread: Future[int | None] | None = None
    _query: StreamingQuery | None = None
    """None before it is started, such as while the thread tries."""
    _kept: tuple[DataStreamWriter, object] | None = None
    """The stream as it was created, if it is kept and has not failed since, and what it is kept for."""

    def __init__(self, stream: Stream, settings: Settings, *, in_rounds: bool = False) -> None:
        self._stream, self._settings, self._run = stream, settings, settings.run
        self.name = stream.name
        self.permit = Permit()
        """What the thread needs to write. It is withdrawn if the step ends before the thread, as the lease may end."""
        self.rows = 0
        """Rows read by all batches."""
        self.new_rows = 0
        """Rows read since `start`."""
        self._counted = -1
        """The id of the query's last batch that `rows` includes."""
        self._record = step_record(settings, stream.name)
        self._in_rounds = in_rounds
        """Whether it runs again and again. Then only runs that read rows, or fail, are worth telling."""
        self._told = ""
        """Why it failed in the last round. It is told once."""
        self.runs = StepRuns(settings, stream.flow)

    def start(self) -> None:
        self._failures = self.new_rows = 0
        self.runs.start(tell=not self._in_rounds)
        self._query, self._began, self.permit = None, time.monotonic(), Permit()
        if self._stream.at_once:
            self._thread = THREADS.submit(self._stream.at_once, self.permit)
        else:
            with self._end_noted():
                self._start(self._stream.prepare)

    def is_active(self) -> bool:
        """Whether it still reads; restarts the query after a failure. Raises LakehouseError if it can't be retried."""
        with self._end_noted():
            return self._is_active()

    def _is_active(self) -> bool:
        if self._query is None:
            return self._is_active_at_once()
        active = self._query.isActive  # read before the progress, or the last of it could be missed
        if self._note_progress(self._query):
            self._failures = 0
        if active:
            return True
        error = self._query.exception()
        if error is None:
            self._end()
            return False
        self._wait_after(error)
        self._start()
        return True

    def stop(self, *, query: bool) -> None:
        """Record that it has ended, though not by itself; stop its `query`, too."""
        self.permit.withdraw()
        if query and self._query and self._query.isActive:
            self._query.stop()
        if self._record.retry:
            self._record.retry = ""
            keep_step(self._settings, self._record)
        self.runs.abort()

    def _is_active_at_once(self) -> bool:
        assert self._thread
        if not self._thread.done():
            return True
        try:
            rows = self._thread.result()
        except Exception as error:
            if self._stream.create:
                raise
            if isinstance(error, SourceError) and error.landed:
                self._note_batches(error.landed, 1, time.monotonic() - self._began)
            self._set_aside(_line(self.name, error))
            return False
        if rows is None:
            self._start()
            return True
        if rows:
            self._note_batches(rows, 1, time.monotonic() - self._began)
        self._end()
        return False

    def _set_aside(self, line: str) -> None:
        """Record that something did not land: what has landed before stays, and the others go on. It is told once."""
        if line != self._told:
            self._tell_failure(line)
            return
        if (self._record.failure, self._record.retry) != (line, ""):  # a retry in between
            self._record.failure, self._record.retry = line, ""
            keep_step(self._settings, self._record)
        self.runs.complete(self.new_rows)

    def _tell_failure(self, line: str) -> None:
        CONSOLE.say(line)
        self._told = line
        self._note_failure(line, is_over=True)

    def _end(self) -> None:
        self._stream.caught_up()
        if why := self._stream.left_out():
            self._set_aside(f"{self.name}: {why}")
            return
        self._told = ""
        if self._record.failure or self._record.retry:
            self._record.failure = self._record.retry = ""
            keep_step(self._settings, self._record)
        self.runs.complete(self.new_rows)

    def _start(self, prepare: Callable[[], None] = lambda: None) -> None:
        while True:
            try:
                writer = self._writer()
                prepare()
                self._query = writer.queryName(self.name).trigger(availableNow=True).start()
            except (PySparkException, Py4JJavaError, BrokerError) as error:
                self._wait_after(error)
            else:
                self._counted = -1
                return

    def _writer(self) -> DataStreamWriter:
        """The stream: the kept one, if there is one for what is now, or else a new one."""
        assert self._stream.create
        if self._stream.kept_for is None:
            return self._stream.create()
        now = self._stream.kept_for()
        if self._kept is None or self._kept[1] != now:
            self._kept = self._stream.create(), now
        return self._kept[0]

    def _wait_after(self, error: Exception) -> None:
        """Wait for the next retry. Raises LakehouseError if none is left, and PermanentError if a retry can't help."""
        self._kept = None
        why = _cause(self.name, error)
        if self._stream.blame(why):
            self._failures = 0
            return
        line = f"{self.name}: {why}"
        if is_permanent(error) or self._failures == self._run.retries:
            raise (PermanentError if is_permanent(error) else LakehouseError)(line) from error
        self._note_failure(line, is_over=False)
        delay = self._run.retry_delay * (2**self._failures if is_of_busy_machine(error) else 1)
        self._failures += 1
        CONSOLE.say(f"{line.rstrip('.')}; retry {self._failures} of {self._run.retries} in {delay:g} s")
        time.sleep(delay)

    @contextmanager
    def _end_noted(self) -> Iterator[None]:
        """Record whatever error ends the run: of the stream, or of what is done around it."""
        try:
            yield
        except Exception as error:
            line = _line(self.name, error)
            if not (self._in_rounds and isinstance(error, ConfigurationError)):
                self._note_failure(line, is_over=True)
            elif line != self._told:  # each round tries it again, as somebody may have approved the change
                self._tell_failure(line)
            raise

    def _note_failure(self, line: str, *, is_over: bool) -> None:
        """Record a retry or the end of the run, and why."""
        self._record.retries += not is_over
        self._record.failures += is_over
        self._record.failure, self._record.retry = (line, "") if is_over else ("", line)
        keep_step(self._settings, self._record)
        if is_over:
            self.runs.fail(line)

    def _note_progress(self, query: StreamingQuery) -> bool:
        """Count and record the rows of batches that ended since the last call; returns whether there were any."""
        last = query.lastProgress
        if last is None or last.batchId <= self._counted:
            return False
        new = [progress for progress in query.recentProgress if progress.batchId > self._counted]
        self._counted = new[-1].batchId
        seconds = sum(progress.batchDuration for progress in new) / 1000
        self._note_batches(sum(progress.numInputRows for progress in new), len(new), seconds)
        return True

    def _note_batches(self, rows: int, batches: int, seconds: float) -> None:
        self.rows, self.new_rows = self.rows + rows, self.new_rows + rows
        self._record.rows += rows
        self._record.batches += batches
        self._record.seconds += seconds
        self._record.batch_at = time.time()
        self._record.retry = ""
        keep_step(self._settings, self._record)
