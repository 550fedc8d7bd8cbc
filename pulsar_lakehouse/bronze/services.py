"""Lands the answers of a service: calls it for the keys that facts wait for, and appends what it says to bronze.

An answer is a message: its payload is the arguments and the answer as one JSON object, and its times are that at which
it came. Answers are appended about once in a second, so a crash loses those of the last one at most. What is committed
is never asked for again: the keys to ask for are those without an answer in bronze.

All calls of a process run in one event loop, so a function may keep a client with open connections. A thread of its own
has the loop, and that of the landing only waits and writes: neither holds up the other.
"""

import asyncio
import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import NamedTuple

import pyarrow as pa
from aiolimiter import AsyncLimiter
from deltalake import DeltaTable
from pydantic_core import from_json, to_json
from tenacity import (
    AsyncRetrying,
    stop_after_attempt,
    stop_before_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.bronze.sources import RETRY_SECONDS, newest_number
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.errors import SourceError
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.records import SnapshotRecord, keep_snapshot, snapshot_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.calling import told
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import columns_of, files_of, stored_table

AT_ONCE = 100
"""The most calls that run at the same time."""
ASK_SECONDS = 20.0
"""Seconds after which no further call begins: the steps behind landing wait for its end. The rest is for the next."""
KEEP_SECONDS = 1.0
"""Seconds between two commits of answers."""
MOST_FAILURES = 20
"""So many calls in a row that fail open the circuit: no further one begins in this run."""
FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0
"""Seconds before a call that failed is repeated: at most, at first and ever."""
LONGEST_PAUSE = 3600.0
"""The most seconds for which keys are left alone that the service has failed for, again and again."""
BLOCKED_SECONDS = 10.0
"""Seconds after which calls are given up that should have ended: some function keeps the event loop from all others."""
BLOCKED = "a service blocks: call nothing in it that does not `await`, or use asyncio.to_thread"


class Answer(NamedTuple):
    key: str
    at: datetime
    payload: bytes


class Failure(NamedTuple):
    key: str
    error: str


class LateError(BaseException):
    """No call begins any more. No Exception, as that is a failure, after which a call is repeated."""


class Pause(NamedTuple):
    """How long a key is left alone that the service failed for: twice as long each time."""

    until: float
    seconds: float


@dataclass
class ServiceLanding:
    """Lands the answers of a service, as the work of a stream that needs no Spark."""

    lake: Lake
    service: Service
    unanswered: Callable[[], Sequence[str]]
    """Tells the keys that facts wait for, and that have no answer."""
    pauses: dict[str, Pause] = field(default_factory=dict)
    """By key that the service failed for, and that has no answer yet."""
    opened_at: float | None = None
    """When the circuit was opened, if the service was not there since."""
    limits: dict[asyncio.AbstractEventLoop, AsyncLimiter] = field(default_factory=dict)
    """What keeps the rate, also from one round to the next."""
    error: str = ""
    """What the last call that failed has said."""

    def __call__(self, permit: Permit) -> int:
        """The number of answers. Raises SourceError, which has it too, while the service has failed for some keys."""
        with permit.used():
            self.lake.create(bronze_table(self.service.topic))
        unanswered = self.unanswered()
        self.pauses = {key: self.pauses[key] for key in unanswered if key in self.pauses}
        answers = 0
        if (keys := self._due(unanswered)) or not snapshot_record(self.lake.settings, self.service.name):
            answers = self._ask(permit, keys, unanswered)
        if self.pauses:
            raise SourceError(self._problem, landed=answers)
        return answers

    def _due(self, unanswered: Sequence[str]) -> list[str]:
        """The keys to ask for now, in any order: one that always fails must not be the first one each time."""
        now = time.monotonic()
        if self.opened_at is not None and now < self.opened_at + RETRY_SECONDS:
            return []
        due = [key for key in unanswered if key not in self.pauses or self.pauses[key].until <= now]
        return random.sample(due, len(due))

    def _ask(self, permit: Permit, keys: Sequence[str], unanswered: Sequence[str]) -> int:
        """Ask for the keys, and note what has come of it. Returns the number of answers."""
        loop = _loop()
        # one by one, so that there is no burst at first
        limit = self.limits.setdefault(loop, AsyncLimiter(1, 1 / self.service.rate))
        asked = _Asked(self.service, keys, limit, is_probed=self.opened_at is not None)
        answers = self._keep_answers(permit, asked, loop)
        self.opened_at = time.monotonic() if asked.is_open else None
        self.pauses = {key: pause for key, pause in self.pauses.items() if key not in answers}
        for key, error in asked.failures:
            self.pauses[key], self.error = self._pause_of(key), error
        self._record(len(answers), [key for key in unanswered if key not in answers])
        return len(answers)

    @property
    def _problem(self) -> str:
        """In one line, how many keys have no answer because of failures, and the last one of these."""
        keys = f"{len(self.pauses):,} keys have" if len(self.pauses) > 1 else f"{next(iter(self.pauses))} has"
        more = "; it is not asked for others until it answers again" if self.opened_at is not None else ""
        return f"{self.service.place}: {keys} no answer: {self.error}{more}"

    def _pause_of(self, key: str) -> Pause:
        before = self.pauses.get(key)
        seconds = min(2 * before.seconds, LONGEST_PAUSE) if before else RETRY_SECONDS
        return Pause(time.monotonic() + seconds, seconds)

    def _keep_answers(self, permit: Permit, asked: "_Asked", loop: asyncio.AbstractEventLoop) -> set[str]:
        """Append answers while they come, and return their keys. Calls that do not end in time have failed."""
        number, kept, has_ended = newest_number(self._table()), set[str](), False
        calls = asyncio.run_coroutine_threadsafe(asked.ask_all(), loop)
        try:
            while not has_ended:
                has_ended = bool(wait([calls], KEEP_SECONDS).done) or time.monotonic() > asked.ends_at
                with permit.used():
                    if answers := list(asked.taken()):
                        number = max(int(time.time() * 1000), number + 1)
                        self._append(answers, number)
                        kept |= {each.key for each in answers}
        finally:
            calls.cancel()
        if not calls.cancelled():
            calls.result()
            return kept
        _lose(loop)
        asked.give_up(kept)
        return kept

    def _append(self, answers: Sequence[Answer], number: int) -> None:
        table = bronze_table(self.service.topic).name
        now = datetime.now(UTC)
        rows = [
            {
                "topic": self.service.name,
                "partition": 0,
                "ledger_id": number,
                "entry_id": place,
                "batch_index": -1,
                "key": answer.key,
                "payload": answer.payload,
                "properties": [],
                "event_time": answer.at,
                "publish_time": answer.at,
                "producer": self.service.place,
                "landed_at": now,
                "publish_date": answer.at.date(),
            }
            for place, answer in enumerate(answers)
        ]
        columns = columns_of(self._table())
        self.lake.table(table).append_arrow(pa.Table.from_pylist(rows, schema=columns).to_reader())

    def _record(self, answers: int, left: Sequence[str]) -> None:
        """Note what has come, and the keys that are left, if there is nothing to ask for now: all have failed."""
        settings, table = self.lake.settings, self._table()
        has_failed = bool(left) and (self.opened_at is not None or self.pauses.keys() >= {*left})
        state = _state_of(left) if has_failed else ""
        before = snapshot_record(settings, self.service.name)
        record = SnapshotRecord(
            source=self.service.name,
            read_at=time.time(),
            rows=sum(files_of(table)["num_records"].to_pylist()),
            changes=answers,
            state=state,
            number=newest_number(table),
            failures=before.failures + 1 if state and before and before.state == state else 0,
        )
        keep_snapshot(settings, record)

    def _table(self) -> DeltaTable:
        return stored_table(self.lake.settings, bronze_table(self.service.topic).name)


def is_left_alone(settings: Settings, service: Service, unanswered: Sequence[str]) -> bool:
    """Whether the service has failed for all of these keys, so that it is left alone for a while."""
    record = snapshot_record(settings, service.name)
    if record is None or record.state != _state_of(unanswered):
        return False
    pause: float = min(RETRY_SECONDS * 2 ** min(record.failures, 10), LONGEST_PAUSE)
    return time.time() < record.read_at + pause


def _state_of(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()


_LOOPS: list[asyncio.AbstractEventLoop] = []
"""The loop of this process, as soon as a call has needed it."""
_LOOPS_LOCK = Lock()


def _loop() -> asyncio.AbstractEventLoop:
    with _LOOPS_LOCK:
        if not _LOOPS:
            _LOOPS.append(loop := asyncio.new_event_loop())
            Thread(target=loop.run_forever, name="services", daemon=True).start()
        return _LOOPS[0]


def _lose(loop: asyncio.AbstractEventLoop) -> None:
    """Have the next calls run in another loop, as this one is blocked."""
    with _LOOPS_LOCK:
        if loop in _LOOPS:
            _LOOPS.remove(loop)


class _Asked:
    """The calls of one run, and what has come of them."""

    def __init__(self, service: Service, keys: Sequence[str], limit: AsyncLimiter, *, is_probed: bool) -> None:
        self.service, self.keys, self._limit = service, keys, limit
        self._until = time.monotonic() + ASK_SECONDS
        """When no further call begins."""
        self.ends_at = self._until + service.timeout_seconds + BLOCKED_SECONDS
        """When all calls have ended, unless the event loop is blocked."""
        self.answers: SimpleQueue[Answer] = SimpleQueue()
        self.failures: list[Failure] = []
        self._is_probed = is_probed
        """Whether the first call is made alone, because the service has failed before."""
        self._failed_in_a_row = 0
        self._circuit = Event()
        """Is set when the circuit opens."""

    @property
    def is_open(self) -> bool:
        """Whether the circuit is open: the service is not called any more, whatever calls still answer."""
        return self._circuit.is_set()

    def give_up(self, kept: set[str]) -> None:
        """All keys without an answer have failed, as the event loop is blocked."""
        self._circuit.set()
        self.failures = [Failure(key, BLOCKED) for key in self.keys if key not in kept]

    def taken(self) -> Iterator[Answer]:
        """The answers that have come since the last call."""
        while True:
            try:
                yield self.answers.get_nowait()
            except Empty:
                return

    async def ask_all(self) -> None:
        keys = iter(self.keys)
        if self._is_probed and self.keys:
            await self._ask(next(keys))
            if self.is_open:
                return
            self._is_probed = False

        async def work() -> None:
            for key in keys:  # which all workers share
                if self.is_open or time.monotonic() > self._until:
                    return
                await self._ask(key)

        most = math.ceil(self.service.rate * self.service.timeout_seconds)  # can run at a time at that rate
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(AT_ONCE, most, len(self.keys))):
                workers.create_task(work())

    async def _ask(self, key: str) -> None:
        """Call the function for a key, again and again if it fails, and keep the answer or the failure."""
        arguments = self.service.arguments_in(key)
        if arguments is None:
            kinds = ", ".join(each.dataType.simpleString() for each in self.service.arguments)
            self.failures.append(Failure(key, f"{key} is not of type {kinds}"))
            return
        in_time = stop_before_delay(max(0.0, self._until - time.monotonic()))
        attempts = AsyncRetrying(
            stop=stop_after_attempt(self.service.retries + 1) | stop_when_event_set(self._circuit) | in_time,
            wait=wait_random_exponential(FIRST_WAIT, LONGEST_WAIT),
            reraise=True,
        )
        failed: list[Exception] = []
        try:
            payload = self._payload(arguments, await attempts(self._call, arguments, failed))
        except LateError:
            self.failures += [Failure(key, told(error)) for error in failed[-1:]]
        except Exception as error:
            self.failures.append(Failure(key, told(error)))
        else:
            self.answers.put(Answer(key, datetime.now(UTC), payload))

    async def _call(self, arguments: Sequence[object], failed: list[Exception]) -> object:
        """What the function returns. An error is added to `failed`, as there may be no time to repeat the call."""
        try:
            async with asyncio.timeout_at(self._until):  # a loop's time is monotonic, too
                await self._limit.acquire()
        except TimeoutError:
            raise LateError from None
        if self.is_open:
            raise LateError
        call = asyncio.create_task(self._said(arguments))
        call.add_done_callback(lambda it: it.cancelled() or it.exception())  # which nobody may wait for any more
        try:
            if not (await asyncio.wait([call], timeout=self.service.timeout_seconds))[0]:
                raise TimeoutError(f"no answer within {self.service.timeout}")
            found = call.result()
        except Exception as error:
            failed.append(error)
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= (1 if self._is_probed else MOST_FAILURES):
                self._circuit.set()
            raise
        finally:
            call.cancel()
        self._failed_in_a_row = 0
        return found

    async def _said(self, arguments: Sequence[object]) -> object:
        """What the function returns. What would end a task or the loop if the function raises it is an error."""
        try:
            return await self.service.function(*arguments)
        except (asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(told(error)) from error

    def _payload(self, arguments: Sequence[object], answer: object) -> bytes:
        """The message. Merging finds it malformed if the answer is none of what is declared."""
        said = from_json(to_json(answer, bytes_mode="base64", inf_nan_mode="strings", serialize_unknown=True))
        if said is not None and not isinstance(said, dict):
            return to_json(said)
        return to_json((said or {}) | dict(zip(self.service.arguments.names, arguments, strict=True)))
