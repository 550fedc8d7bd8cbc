"""Runs commands in processes that have the libraries loaded already: it loads them, and forks for each command.

Run by the engine as `python -m pulsar_lakehouse.engine.forkserver <folder> <seconds>`. It begins small, loads libraries
while no command runs, once there was one, and is small again after so many seconds without any. It ends when its
standard input does and the last command has. Of this package, it lends a command nothing: each loads the modules as
they are by then.

A command ends with the process that asked for it, and with this one, so it never goes on unseen.
"""

import ctypes
import gc
import importlib
import io
import os
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pulsar_lakehouse.engine.wire import PATIENCE, address, close, interpreter, receive, send

LIBRARIES = (
    *("pyspark.errors.exceptions.captured", "pyspark.java_gateway", "pyspark.ml", "pyspark.sql.datasource"),
    *("pyspark.sql.functions", "pyspark.sql.streaming", "pyspark.sql.streaming.listener", "delta"),
    *("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "deltalake", "deltalake.query", "duckdb", "sqlglot"),
    *("sqlglot.dialects", "sqlglot.optimizer", "pydantic_settings", "typer", "rich.progress", "rich.table", "pulsar"),
    *("requests", "fastavro", "google.protobuf.json_format", "cryptography.x509", "pandas", "great_expectations"),
    *("pyspark.sql.classic.dataframe", "sqlglot.dialects.spark", "sqlglot.optimizer.annotate_types"),
    *(f"pulsar_lakehouse.{module}" for module in ("cli.run", "cli.plan", "cli.validate", "jobs.lineage.events")),
)
"""What commands load, or else they do so themselves. A library that is not installed is left out.

The modules of this package are there for the libraries that they load: a command loads its own.
"""
SET_PDEATHSIG = 1
"""The option of prctl(2) for the signal that a process gets when its parent ends."""


class Forkserver:
    def __init__(self, folder: Path, idle_seconds: float) -> None:
        self.path, self.idle_seconds, self.interpreter = folder / "commands", idle_seconds, interpreter()
        self.selector = selectors.DefaultSelector()
        self.listening = socket.socket(socket.AF_UNIX)
        self.libraries = iter(LIBRARIES)
        self.is_open, self.is_asked = True, False
        self.running: dict[int, tuple[int, socket.socket]] = {}
        """By the file descriptor of its process, the pid of a command, and the connection to who asked for it."""

    def serve(self) -> None:
        self.path.unlink(missing_ok=True)
        with address(self.path) as name:
            self.listening.bind(name)
        self.inode = self.path.stat().st_ino
        self.listening.listen()
        self.selector.register(self.listening, selectors.EVENT_READ, self._answer)
        self.selector.register(sys.stdin, selectors.EVENT_READ, self._close)
        patience: float | None = None
        while self.is_open or self.running:
            for key, _ in (ready := self.selector.select(patience)):
                if self.selector.get_map().get(key.fd) is key:  # or else one before has closed it
                    key.data(key.fd)
            if self.running or not self.is_asked:
                patience = None
            elif ready:
                patience = 0
            elif patience == 0:
                patience = 0 if _load_next(self.libraries) else self.idle_seconds
            else:
                os.execv(sys.executable, sys.orig_argv)  # small again, with the same standard input

    def _close(self, _: int) -> None:
        self.is_open = False
        with suppress(OSError):
            if self.path.stat().st_ino == self.inode:  # while it is open, no other file has this number
                self.path.unlink()
        for each in (self.listening, sys.stdin):
            self.selector.unregister(each)
        self.listening.close()

    def _answer(self, _: int) -> None:
        connection, _ = self.listening.accept()
        connection.settimeout(PATIENCE)
        with suppress(Exception):  # whatever one has sent, other commands are running
            if receive(connection)[0] == self.interpreter:
                send(connection, "ready")  # asked for first: a server that hangs has no files of a command
                told, files = receive(connection)
                try:
                    self._fork(connection, told, files)
                finally:
                    close(files)
                return
        connection.close()
        if interpreter() != self.interpreter:
            self._close(0)

    def _fork(self, connection: socket.socket, told: dict[str, Any], files: Sequence[int]) -> None:
        """Raises OSError if there is no process for the command, or nobody waits for it any more."""
        if select.select([connection], [], [], 0)[0]:
            raise ConnectionResetError("who asked has ended")
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_command(connection, told, files, parent)
        try:
            process = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self.is_asked = True
        self.running[process] = pid, connection
        self.selector.register(process, selectors.EVENT_READ, self._tell_end)
        self.selector.register(connection, selectors.EVENT_READ, lambda _: self._kill(process))
        with suppress(OSError):
            send(connection, {"running": True}, [process])

    def _be_command(
        self, connection: socket.socket, told: dict[str, Any], files: Sequence[int], parent: int
    ) -> NoReturn:
        code: object = 1
        try:
            ctypes.CDLL(None).prctl(SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                self._forget(connection)
                become(told, files)
        except SystemExit as end:
            code = end.code or 0
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code if isinstance(code, int) else 1)

    def _forget(self, connection: socket.socket) -> None:
        """Close what is not a command's: those who ask others must see when this process ends."""
        inherited = [connection.fileno(), *(key.fd for key in self.selector.get_map().values() if key.fd != 0)]
        self.selector.close()
        close(inherited)

    def _kill(self, process: int) -> None:
        """Kill a command, since who asked for it has ended."""
        pid, connection = self.running[process]
        self.selector.unregister(connection)
        os.kill(pid, signal.SIGKILL)

    def _tell_end(self, process: int) -> None:
        pid, connection = self.running.pop(process)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.selector.unregister(process)
        os.close(process)
        with suppress(KeyError):
            self.selector.unregister(connection)
        with connection, suppress(OSError):
            send(connection, {"code": code})


def _load_next(libraries: Iterator[str]) -> bool:
    """Load one of the libraries; returns whether there may be more."""
    for library in libraries:
        with suppress(Exception):  # also one that is being installed
            importlib.import_module(library)
        return True
    gc.collect()
    gc.freeze()  # what stays for ever need not be looked at by commands, and so be copied
    return False


def become(told: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """Run a command in this process, with the files, arguments, environment and folder of who asked for it."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    close(files)
    for number, (name, given) in enumerate(told["streams"].items()):
        by_part = 0 if given["write_through"] else -1
        binary = open(number, "wb" if number else "rb", by_part, closefd=False)  # noqa: SIM115  # open to the end
        stream = io.TextIOWrapper(binary, **given)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["folder"])
    time.tzset()
    sys.argv, sys.path = told["arguments"], told["path"]
    for name in [each for each in sys.modules if each.split(".")[0] == "pulsar_lakehouse"]:
        del sys.modules[name]  # as it was when this process started
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    signal.signal(signal.SIGINT, signal.default_int_handler if told["is_interruptible"] else signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    importlib.import_module("pulsar_lakehouse.cli.__main__").run()
    raise AssertionError("a command ends its process")


def main() -> None:
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a command gets one that comes before it is ready
    Forkserver(Path(sys.argv[1]), float(sys.argv[2])).serve()
    os._exit(0)  # libraries clean up loudly


if __name__ == "__main__":
    main()
