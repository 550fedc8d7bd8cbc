"""Run streams until they have caught up, or for ever; and try again what fails for a reason that may pass."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.status import Status
from rich.text import Text

from lakehouse.errors import BrokerError, LakehouseError, PermanentError
from lakehouse.progress import CONSOLE, spinner
from lakehouse.settings import Run, Settings
from lakehouse.spark.causes import cause_of, is_permanent
from lakehouse.spark.session import drop_idle_callbacks

Stream = Callable[[], DataStreamWriter]
"""Makes a stream anew, from the tables as they are now."""

POLL_SECONDS = 0.1
LOG_SECONDS = 60.0
"""Between two lines about their progress where there is no terminal."""
REST_SECONDS = 60.0
"""The longest time without a round, in case that what a round has missed can't be seen from outside."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    name: str
    rows: int
    """Rows read: messages, or changes of tables."""
    seconds: float


def catch_up(settings: Settings, streams: Sequence[Stream]) -> list[Outcome]:
    """Run streams side by side until they have read all that is there.

    What fails is tried again, `run.retries` times. Raises LakehouseError with the cause if that does not help.
    """
    step = [_Supervised(stream, settings.run) for stream in streams]
    with _started(step), spinner(", ".join(each.name for each in step)):
        return _until_caught_up(step)


def keep_up(
    settings: Settings, steps: Sequence[Sequence[Stream]], *, every: float, look: Callable[[], object]
) -> NoReturn:
    """Let steps catch up in turn, in a round every so many seconds, until KeyboardInterrupt.

    Steps take turns as they share the same cores, and as the later ones read what the earlier ones have written. After
    a round that found nothing, the next one waits until what `look` returns has changed, or for `REST_SECONDS`.
    What fails is tried again as in `catch_up`, in each round anew.
    """
    supervised = [[_Supervised(stream, settings.run) for stream in streams] for streams in steps]
    with spinner("Running; Ctrl-C ends it") as status:
        tell = _teller(status, [each for step in supervised for each in step])
        ended, unchanged = 0.0, None
        while True:
            began = time.monotonic()
            seen = _seen(look)
            if seen is None or seen != unchanged or began - ended >= REST_SECONDS:
                rows = 0
                for step in supervised:
                    with _started(step):
                        rows += sum(outcome.rows for outcome in _until_caught_up(step, tell))
                drop_idle_callbacks()
                ended, unchanged = time.monotonic(), None if rows else seen
            tell()
            time.sleep(max(0.0, every - (time.monotonic() - began)))


def _teller(status: Status, streams: Sequence["_Supervised"]) -> Callable[[], None]:
    """Shows how many rows streams have read: at once on a terminal, elsewhere as a line now and then."""
    said = time.monotonic()

    def tell() -> None:
        nonlocal said
        counts = " · ".join(f"{each.name} {each.rows:,}" for each in streams)
        status.update(Text(f"Running; Ctrl-C ends it. {counts}"))
        if not CONSOLE.is_terminal and time.monotonic() - said > LOG_SECONDS:
            CONSOLE.say(counts)
            said = time.monotonic()

    return tell


def _seen(look: Callable[[], object]) -> object:
    try:
        return look()
    except Exception:  # a broker that is away, a torn log: a round tells more of it
        return None


def _until_caught_up(step: Sequence["_Supervised"], tell: Callable[[], None] = lambda: None) -> list[Outcome]:
    started = time.monotonic()
    done: dict[str, Outcome] = {}
    while len(done) < len(step):
        for each in step:
            if each.name not in done and not each.is_active():
                seconds = time.monotonic() - started
                done[each.name] = Outcome(name=each.name, rows=each.new_rows, seconds=seconds)
        tell()
        time.sleep(POLL_SECONDS)
    return list(done.values())


@contextmanager
def _started(step: Sequence["_Supervised"]) -> Iterator[None]:
    """If a stream fails, all stop. An interrupt ends the JVM, and so the streams."""
    started: list[_Supervised] = []
    try:
        for each in step:
            each.start()
            started.append(each)
        yield
    except Exception:
        for each in started:
            each.stop()
        raise


class _Supervised:
    """A streaming query that reads what is there, and is started again when it fails."""

    _query: StreamingQuery

    def __init__(self, stream: Stream, run: Run) -> None:
        self._stream, self._run = stream, run
        self._failures = 0
        self.rows = 0
        """Of all batches."""
        self.new_rows = 0
        """Of those since `start`."""
        self._counted = -1
        """The last batch of the query that is in `rows`."""
        self.name = ""

    def start(self) -> None:
        self._failures = self.new_rows = 0
        self._start()

    def is_active(self) -> bool:
        """Whether it runs, started again if it has failed. Raises LakehouseError when that is no use any more."""
        active = self._query.isActive  # before the progress is read, or the last of it could be missed
        if self._note_progress():
            self._failures = 0
        if active:
            return True
        error = self._query.exception()
        if error is None:
            return False
        self._wait_after(error)
        self._start()
        return True

    def stop(self) -> None:
        if self._query.isActive:
            self._query.stop()

    def _start(self) -> None:
        while True:
            try:
                self._query = self._stream().trigger(availableNow=True).start()
            except (PySparkException, Py4JJavaError, BrokerError) as error:
                self._wait_after(error)
            else:
                self.name, self._counted = self._query.name, -1
                return

    def _wait_after(self, error: Exception) -> None:
        """Wait for the next try. Raises LakehouseError if there is none, or if it would be no use."""
        line = f"{self.name}: {cause_of(error)}" if self.name else cause_of(error)
        if is_permanent(error):
            raise PermanentError(line) from error
        if self._failures == self._run.retries:
            raise LakehouseError(line) from error
        self._failures += 1
        again = f"try {self._failures} of {self._run.retries} in {self._run.retry_delay:g} s"
        CONSOLE.say(f"{line.rstrip('.')}; {again}")
        time.sleep(self._run.retry_delay)

    def _note_progress(self) -> bool:
        """Count the rows of batches that have ended since the last look; False if there are none."""
        last = self._query.lastProgress
        if last is None or last.batchId <= self._counted:
            return False
        new = [progress for progress in self._query.recentProgress if progress.batchId > self._counted]
        rows = sum(progress.numInputRows for progress in new)
        self.rows, self.new_rows = self.rows + rows, self.new_rows + rows
        self._counted = new[-1].batchId
        return True
