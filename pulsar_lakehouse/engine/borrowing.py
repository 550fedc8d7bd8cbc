"""Borrows the JVM of the engine for this process, and gives it back."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from pulsar_lakehouse.engine.launch import EndedError, Gateway
from pulsar_lakehouse.engine.wire import PATIENCE, address, receive, send, user_of

PACKAGE = Path(__file__).parent.parent
START = 180.0
"""Seconds within which a JVM that the engine starts answers."""
LOANS: "list[Loan]" = []
"""What this process has borrowed and not given back."""


class Loan:
    """A JVM that this process has borrowed. It can be waited for and killed like a process of its own."""

    def __init__(self, connection: socket.socket, keeper: int, told: Mapping[str, Any]) -> None:
        self.connection, self.keeper, self.pid = connection, keeper, int(told["pid"])
        self.gateway = Gateway(port=told["port"], secret=told["secret"])
        self.code: int | None = None
        self.released, self.ended = threading.Event(), threading.Event()
        self.is_free = False
        """Whether the engine has said that it holds the leases no more."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(PATIENCE))
        threading.Thread(target=self._listen, daemon=True).start()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code of the JVM. Raises TimeoutExpired if it is still running then."""
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired("the JVM of the engine", timeout or 0)
        return -signal.SIGKILL if self.code is None else self.code

    def kill(self) -> None:
        _kill(self.pid)

    def give_back(self, *, is_well: bool) -> None:
        """Give it back for the next command; if it may still do something, it is killed.

        Returns when nobody holds the leases of this process any more. An engine that is hung can't see to that, so
        it is killed. The JVM of one that has ended lives on for a moment, so it is killed, too.
        """
        with suppress(OSError):
            send(self.connection, {"well": is_well, "modules": modules()})
        if not self.released.wait(PATIENCE):
            _kill(self.keeper)
        if not self.is_free:
            _kill(self.pid)
        self.connection.close()
        LOANS.remove(self)

    def _listen(self) -> None:
        with suppress(OSError):
            while not self.released.is_set():
                said, _ = receive(self.connection)
                if "ended" in said:
                    self.code = said["ended"]
                    self.ended.set()
                elif "released" in said:
                    self.is_free = True
                    self.released.set()
        self.ended.set()  # the engine has ended, and its JVM with it
        self.released.set()


def borrow(folder: Path, wanted: dict[str, Any], files: Sequence[int]) -> Loan | None:
    """Borrow the JVM of the engine in this folder; None if this user has none, or has lent it, or it is hung.

    `wanted` is what the JVM is started with, if the engine has none that fits. The engine keeps the open `files` until
    the JVM is given back, or has ended. Raises EndedError if the JVM ends while it starts.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE)
    try:
        with address(folder / "socket") as name:
            connection.connect(name)
        if sys.platform == "linux" and user_of(connection) != os.getuid():  # it would get what the environment says
            raise PermissionError("the engine of another user")
        about = {"pid": os.getpid(), "command": " ".join(sys.argv[1:])}
        send(connection, {"wish": "borrow", "borrower": about, **wanted})
        answer = receive(connection)[0]
        if answer["busy"]:
            connection.close()
            return None
        connection.settimeout(START)
        told = receive(connection)[0]
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError):
            return None
        raise
    if "ended" in told:
        connection.close()
        raise EndedError(told["ended"])
    return _held(connection, answer["keeper"], told, files)


def _held(connection: socket.socket, keeper: int, told: Mapping[str, Any], files: Sequence[int]) -> Loan | None:
    """The loan of a JVM that holds the files; None if the engine has failed meanwhile."""
    connection.settimeout(PATIENCE)
    try:
        send(connection, {}, files)
        receive(connection)
    except BaseException as error:
        if isinstance(error, TimeoutError):  # it has the files
            _kill(keeper)
        connection.close()
        if isinstance(error, OSError):
            return None
        raise
    connection.settimeout(None)
    LOANS.append(loan := Loan(connection, keeper, told))
    return loan


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


def _kill(pid: int) -> None:
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        process = psutil.Process(pid)
        process.kill()
        process.wait(PATIENCE)


def modules() -> dict[str, int]:
    """Files of modules, and when each was modified, in epoch nanoseconds: of this package, and those loaded here.

    Python processes of Spark outlive a loan, with the modules that they have loaded.
    """
    loaded = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    found = {}
    for file in {*filter(None, loaded), *map(str, PACKAGE.rglob("*.py"))}:
        with suppress(OSError):
            found[file] = Path(file).stat().st_mtime_ns
    return found
