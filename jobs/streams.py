"""Run streams until they have caught up, or for ever; and try again what fails for a reason that may pass."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.text import Text

from lakehouse.causes import cause_of, is_permanent
from lakehouse.errors import BrokerError, LakehouseError, PermanentError
from lakehouse.settings import Run, Settings
from lakehouse.waiting import CONSOLE, waiting

Stream = Callable[[], DataStreamWriter]
"""Makes a stream anew, from the tables as they are now."""

Trigger = Callable[[DataStreamWriter], DataStreamWriter]

POLL_SECONDS = 0.1
WATCH_SECONDS = 1.0
"""Between two looks at streams that run for ever; each look brings their progress over from the JVM."""
LOG_SECONDS = 60.0
"""Between two lines about their progress where there is no terminal."""


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
    started = time.monotonic()
    done: dict[str, Outcome] = {}
    with (
        _supervised(streams, lambda writer: writer.trigger(availableNow=True), settings.run) as running,
        waiting(", ".join(each.name for each in running)),
    ):
        while len(done) < len(running):
            for each in running:
                if each.name not in done and not each.is_active():
                    seconds = time.monotonic() - started
                    done[each.name] = Outcome(name=each.name, rows=each.rows, seconds=seconds)
            time.sleep(POLL_SECONDS)
    return list(done.values())


def keep_up(settings: Settings, streams: Sequence[Stream], *, every: float) -> None:
    """Run streams side by side, a batch of each every so many seconds, until KeyboardInterrupt.

    What fails is tried again as in `catch_up`; a batch that succeeds resets the count.
    """
    trigger = f"{every} seconds"
    with (
        _supervised(streams, lambda writer: writer.trigger(processingTime=trigger), settings.run) as running,
        waiting("Running; Ctrl-C ends it") as status,
    ):
        logged = time.monotonic()
        while all(each.is_active() for each in running):
            counts = " · ".join(f"{each.name} {each.rows:,}" for each in running)
            status.update(Text(f"Running; Ctrl-C ends it. {counts}"))
            if not CONSOLE.is_terminal and time.monotonic() - logged > LOG_SECONDS:
                CONSOLE.say(counts)
                logged = time.monotonic()
            time.sleep(WATCH_SECONDS)


@contextmanager
def _supervised(streams: Sequence[Stream], trigger: Trigger, run: Run) -> Iterator[list["_Supervised"]]:
    """The streams, started; if one fails, all stop. An interrupt ends the JVM, and so the streams."""
    running: list[_Supervised] = []
    try:
        for stream in streams:
            running.append(_Supervised(stream, trigger, run))
        yield running
    except Exception:
        for each in running:
            each.stop()
        raise


class _Supervised:
    """A streaming query that is started again when it fails."""

    def __init__(self, stream: Stream, trigger: Trigger, run: Run) -> None:
        self._stream, self._trigger, self._run = stream, trigger, run
        self._failures = 0
        self.rows = 0
        self._counted = ""
        """When the last batch that is in `rows` began, as ISO 8601 text."""
        self.name = ""
        self._query = self._start()

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
        self._query = self._start()
        return True

    def stop(self) -> None:
        if self._query.isActive:
            self._query.stop()

    def _start(self) -> StreamingQuery:
        while True:
            try:
                query: StreamingQuery = self._trigger(self._stream()).start()
            except (PySparkException, BrokerError) as error:
                self._wait_after(error)
            else:
                self.name = query.name
                return query

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
        if last is None or last.timestamp <= self._counted:
            return False
        new = [progress for progress in self._query.recentProgress if progress.timestamp > self._counted]
        self.rows += sum(progress.numInputRows for progress in new)
        self._counted = max([self._counted, *(progress.timestamp for progress in new)])
        return True
