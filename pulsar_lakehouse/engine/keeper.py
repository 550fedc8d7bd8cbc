"""The engine's process. It keeps one JVM of Spark, and lends it to one command at a time.

It also keeps a Python with its libraries loaded, which forks for each command: `engine.forkserver`.

Run as `python -m pulsar_lakehouse.engine.keeper <folder> <seconds>`: the JVM ends after so many seconds without a
borrower. The process itself is small, and stays.

The JVM is lent with the leases of the command that borrows it: their files are in a queue of which the JVM has the
other end. So a lease is held as long as that JVM lives, or until this process takes the files out of the queue. It does
so when the command has given the JVM back. When the command is gone without that, it first kills the JVM, which could
still write.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from pulsar_lakehouse.engine.launch import EndedError, Gateway, gateway_of, launch
from pulsar_lakehouse.engine.wire import address, close, receive, receive_files, send, send_files

MOST_LOANS = 100
"""After so many loans, a JVM is renewed: each leaves a little in it."""
GENTLE = 5.0
"""Seconds for a JVM to end by itself."""
MOMENT = 0.5
"""Seconds to wait for a JVM that is given back, or ends, just now."""
BESIDE_HEAP = 1536 * 2**20
"""Bytes that a JVM may have beside its heap, before it is renewed."""


class Jvm:
    """A JVM that the engine has started: what it was started with, how often it was lent, and the leases it holds."""

    def __init__(self, wanted: dict[str, Any], folder: Path) -> None:
        """Raises EndedError if it ends while it starts."""
        self.fit, self.heap, self.modules = wanted["fit"], wanted["heap"], dict[str, int]()
        self.loans = 0
        self.borrower: socket.socket | None = None
        self.queue, self.inner = socket.socketpair()
        with tempfile.TemporaryDirectory(dir=folder) as answers:
            answer = Path(answers, "gateway")
            self.process = launch(
                wanted["command"],
                wanted["environment"],
                answer=answer,
                log=Path(wanted["log"]),
                folder=wanted["folder"],
                inherited=[self.inner.fileno()],
            )
            try:
                self.gateway: Gateway = gateway_of(self.process, answer)
            except EndedError:
                self.end()
                raise
        threading.Thread(target=self._tell_end, daemon=True).start()

    def _tell_end(self) -> None:
        """Tell the borrower when the JVM has ended, and how."""
        code = self.process.wait()
        if (borrower := self.borrower) is not None:
            with suppress(OSError):
                send(borrower, {"ended": code})

    def fits(self, wanted: dict[str, Any]) -> bool:
        """Whether it is alive, has these properties, and its workers have loaded no module that changed since."""
        return self.fit == wanted["fit"] and self.process.poll() is None and not any(map(self._changed, self.modules))

    def _changed(self, file: str) -> bool:
        try:
            return Path(file).stat().st_mtime_ns != self.modules[file]
        except OSError:
            return True

    @property
    def bytes(self) -> int:
        return bytes_of(self.process)

    @property
    def is_worn(self) -> bool:
        return self.loans >= MOST_LOANS or not 0 < self.bytes <= self.heap + BESIDE_HEAP

    def hold(self, files: Sequence[int]) -> None:
        """Keep these files open as long as the JVM lives, or until `release`."""
        send_files(self.queue, files)

    def release(self) -> None:
        self.inner.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                close(receive_files(self.inner))

    def end(self, *, gently: bool = False) -> None:
        """Kill it, wait until it is gone, and only then release what it holds.

        One that does nothing any more gets a moment to remove its files.
        """
        assert self.process.stdin is not None
        self.process.stdin.close()
        if gently:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GENTLE)
        self.process.kill()
        self.process.wait()
        self.release()
        for each in (self.queue, self.inner):
            each.close()


class Keeper:
    def __init__(self, folder: Path, idle_seconds: float) -> None:
        self.folder, self.idle_seconds = folder, idle_seconds
        self.path, self.inode = folder / "socket", 0
        self.jvm: Jvm | None = None
        self.forkserver: subprocess.Popen[bytes] | None = None
        self.lent, self.ending = threading.Lock(), threading.Event()
        self.borrower: dict[str, Any] | None = None
        self.since = time.monotonic()

    def serve(self) -> None:
        """Lend until somebody asks to end, or the socket is removed."""
        self.path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listening:
            with address(self.path) as name:
                listening.bind(name)
            self.inode = self.path.stat().st_ino
            listening.listen()
            listening.settimeout(1)
            self._start_forkserver()
            while self._is_ours() and not self.ending.is_set():
                self._end_idle()
                with suppress(TimeoutError):
                    connection, _ = listening.accept()
                    connection.settimeout(None)
                    threading.Thread(target=self._answer, args=[connection], daemon=True).start()
            self._unlink()
            self._end_forkserver()
        with self.lent:  # a command that has the JVM may go on to its end
            if self.jvm is not None:
                self.jvm.end(gently=True)

    def _is_ours(self) -> bool:
        with suppress(OSError):
            return self.path.stat().st_ino == self.inode
        return False

    def _unlink(self) -> None:
        if self._is_ours():
            self.path.unlink(missing_ok=True)

    def _end_idle(self) -> None:
        if time.monotonic() - self.since > self.idle_seconds and self.lent.acquire(blocking=False):
            if self.jvm is not None:
                self.jvm.end(gently=True)
                self.jvm = None
            self.lent.release()

    def _start_forkserver(self) -> None:
        if self.forkserver is None or self.forkserver.poll() is not None:
            command = [sys.executable, "-P", "-m", "pulsar_lakehouse.engine.forkserver"]
            command += [str(self.folder), str(self.idle_seconds)]
            self.forkserver = subprocess.Popen(command, stdin=subprocess.PIPE)

    def _end_forkserver(self) -> None:
        """Let it end, once the commands have that it has forked."""
        if self.forkserver is not None and self.forkserver.stdin is not None:
            self.forkserver.stdin.close()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            wanted, _ = receive(connection)
            match wanted["wish"]:
                case "borrow" if self.lent.acquire(timeout=MOMENT):
                    try:
                        self._lend(connection, wanted)
                    finally:
                        self.since, self.borrower = time.monotonic(), None
                        self.lent.release()
                    send(connection, {"released": True})
                case "borrow":
                    send(connection, {"busy": True})
                case "end":
                    self.ending.set()
                    self._unlink()  # at once, so that another engine can begin
                    send(connection, self._state())
                case _:
                    send(connection, self._state())

    def _lend(self, connection: socket.socket, wanted: dict[str, Any]) -> None:
        self.borrower = wanted["borrower"]
        self._start_forkserver()
        send(connection, {"busy": False, "keeper": os.getpid()})
        try:
            jvm = self._fitting(wanted)
        except EndedError as error:
            send(connection, {"ended": error.code})
            return
        jvm.borrower = connection
        send(connection, {"pid": jvm.process.pid, **vars(jvm.gateway)})
        _, files = receive(connection)
        since, is_well = time.time_ns(), False
        try:
            jvm.hold(files)
            jvm.loans += 1
            send(connection, {"held": True})
            returned = receive(connection)[0]
            jvm.modules |= returned["modules"]
            is_well = returned["well"] and max(jvm.modules.values(), default=0) < since
        finally:
            close(files)
            jvm.borrower = None
            if is_well and not jvm.is_worn and not self.ending.is_set():
                jvm.release()
            else:
                self.jvm = None
                jvm.end(gently=is_well)

    def _fitting(self, wanted: dict[str, Any]) -> Jvm:
        if self.jvm is not None and not self.jvm.fits(wanted):
            self.jvm.end(gently=True)
            self.jvm = None
        if self.jvm is None:
            self.jvm = Jvm(wanted, self.folder)
        return self.jvm

    def _state(self) -> dict[str, Any]:
        jvm = self.jvm
        about = None if jvm is None else {"pid": jvm.process.pid, "bytes": jvm.bytes, "loans": jvm.loans}
        idle = round(time.monotonic() - self.since)
        python = None if self.forkserver is None else bytes_of(self.forkserver)
        return {"pid": os.getpid(), "borrower": self.borrower, "jvm": about, "python": python, "idle": idle}


def bytes_of(process: subprocess.Popen[bytes]) -> int:
    """Its resident memory; 0 if it has ended."""
    with suppress(psutil.Error):
        return int(psutil.Process(process.pid).memory_info().rss)
    return 0


def main() -> None:
    os.umask(0o077)
    folder, idle_seconds = Path(sys.argv[1]), float(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (folder / "lock").open("a+") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if (folder / "socket").exists():  # another process serves this home
                    return
                time.sleep(0.2)  # another one is about to begin, or to end
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        Keeper(folder, idle_seconds).serve()


if __name__ == "__main__":
    main()
