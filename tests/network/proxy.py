"""A network that fails: a TCP proxy that delays, cuts or stalls the connections between two programs.

Each connection draws its fault from a seed, its number, and how often faults have begun: the kind, and after how many
bytes of answers it strikes. TCP keeps bytes in order, so only whole connections overtake each other, by delays.
"""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from threading import Thread
from typing import Any

from pulsar_lakehouse.local.processes import HOST

CHUNK, WINDOW = 64 * 1024, 4096
AFTER = (0, 0, 1, 10, 100, 1_000, 10_000)
"""The bytes of answers, roughly, after which a fault strikes."""
LOOK = 0.02
"""Seconds between two looks at whether a stalled connection has healed."""


class Fault(Enum):
    REFUSED = "refused"
    """The connection is reset as soon as it is there."""
    DELAYED = "delayed"
    """Each piece comes up to two seconds late, so connections overtake each other."""
    SLOW = "slow"
    """The answer comes one byte at a time, or a few, through small windows."""
    CUT = "cut"
    """Reset, perhaps in the middle of an answer."""
    TRUNCATED = "truncated"
    """The answer ends early, as if it were whole."""
    UNANSWERED = "unanswered"
    """Requests arrive, and no answer comes back."""
    UNREAD = "unread"
    """Nothing is read any more, so that requests fill the window."""


STALLS = (Fault.UNANSWERED, Fault.UNREAD)


@dataclass(eq=False)
class Connection:
    """Two streams; its fault waits until so many bytes of answers have passed."""

    draw: random.Random
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    fault: Fault | None = None
    after: int = 0
    is_lost: bool = False
    """Whether a stall lasts though the network has healed, as when a firewall has forgotten the connection."""
    has_struck: bool = False

    def end(self, *, cut: bool = False) -> None:
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort() if cut else writer.close()


@dataclass(eq=False)
class Proxy:
    """Passes what comes to `port` on to another port of this machine, until `strike` makes it unreliable."""

    target: int
    seed: object = 1
    struck: Counter[Fault] = field(default_factory=Counter)
    """How many connections had each fault."""
    port: int = 0
    lost: float = 0.5
    """The share of stalled connections that stay so."""

    def __post_init__(self) -> None:
        self._kinds: Sequence[Fault] = ()
        self._share, self._times, self._number = 0.0, 0, 0
        self._connections: set[Connection] = set()
        self._listening = socket.create_server((HOST, self.port))
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)  # which accepted sockets inherit
        self.port = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._pass_on, sock=self._listening))
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def strike(self, kinds: Sequence[Fault] = tuple(Fault), *, share: float = 1.0) -> None:
        """From now on, such a share of the connections has a fault: of those that are there, and of those to come."""
        self._do(self._strike(kinds, share))

    def heal(self) -> None:
        """End the faults. Connections that are stalled go on, unless they are lost."""
        self._do(self._strike((), 0))

    def close(self) -> None:
        self._do(self._end())
        self._thread.join()

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.call_soon(self._loop.stop)

    async def _strike(self, kinds: Sequence[Fault], share: float) -> None:
        self._kinds, self._share, self._times, self._number = kinds, share, self._times + 1, 0
        for each in self._connections:
            if not kinds and each.has_struck and each.fault in STALLS and each.is_lost:
                continue
            each.fault = None
            if kinds:
                self._draw_fault(each)

    def _draw_fault(self, connection: Connection) -> None:
        self._number += 1
        draw = connection.draw = random.Random(f"{self.seed} {self._times} {self._number}")
        connection.has_struck, connection.is_lost = False, draw.random() < self.lost
        fault, after = draw.choice(self._kinds or (None,)), draw.choice(AFTER)
        connection.after = draw.randint(after // 2, 2 * after)
        connection.fault = fault if draw.random() < self._share else None

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(random.Random(), writer)
        self._draw_fault(connection)
        if connection.fault == Fault.REFUSED:
            self._note(connection)
            connection.end(cut=True)
            return
        self._connections.add(connection)
        try:
            answers, connection.server = await asyncio.open_connection(HOST, self.target)
            passing = [self._pass(connection, reader, connection.server, is_answer=False)]
            passing.append(self._pass(connection, answers, writer, is_answer=True))
            tasks = [asyncio.ensure_future(each) for each in passing]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        except OSError:  # nobody listens there
            pass
        finally:
            connection.end()
            self._connections.discard(connection)

    def _note(self, connection: Connection) -> None:
        if connection.fault and not connection.has_struck:
            self.struck[connection.fault] += 1
        connection.has_struck = True

    async def _pass(
        self, connection: Connection, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with suppress(OSError):
            while data := await source.read(CHUNK):
                if (fault := connection.fault) and is_answer and len(data) <= connection.after:
                    connection.after -= len(data)
                elif fault and (is_answer or connection.after == 0 or connection.has_struck):
                    left = await self._spoil(connection, fault, data, sink, is_answer=is_answer)
                    if left is None:
                        return
                    data = left
                sink.write(data)
                await sink.drain()

    async def _spoil(
        self, connection: Connection, fault: Fault, data: bytes, sink: asyncio.StreamWriter, *, is_answer: bool
    ) -> bytes | None:
        """What is left to send of the data; None if the connection ends."""
        if not is_answer and fault not in (Fault.UNREAD, Fault.DELAYED):
            return data
        self._note(connection)
        before, connection.after = connection.after, 0
        match fault:
            case Fault.CUT | Fault.REFUSED | Fault.TRUNCATED:
                sink.write(data[:before])
                await sink.drain()
                if fault != Fault.TRUNCATED:
                    connection.end(cut=True)
                return None
            case Fault.DELAYED:
                await asyncio.sleep(connection.draw.uniform(0, 2))
            case Fault.SLOW:
                size = connection.draw.choice((1, 10, 100))
                while connection.fault == Fault.SLOW and data:
                    sink.write(data[:size])
                    await sink.drain()
                    data = data[size:]
                    await asyncio.sleep(0.002)
            case Fault.UNANSWERED | Fault.UNREAD:
                while connection.fault == fault:
                    await asyncio.sleep(LOOK)
        return data


@contextmanager
def proxied(target: int, seed: object = 1) -> Iterator[Proxy]:
    proxy = Proxy(target, seed)
    try:
        yield proxy
    finally:
        proxy.close()
