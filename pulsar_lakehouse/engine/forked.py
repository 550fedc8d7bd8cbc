"""Runs this command in a process that the engine forks, which has the libraries loaded already.

It imports little, as that is all its use. So it looks for the engine where the home is by default, or where
`LAKEHOUSE_HOME` says; the command reads all settings by itself, and borrows Spark from the engine of its own home.
"""

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pulsar_lakehouse.engine.wire import PATIENCE, address, interpreter, receive, send, user_of

OWN = ("up", "down", "engine", "airflow", "demo", "serve", "ui")
"""Commands that start what outlives the engine, or go on for long, as all do that have `--every`."""
FILES_OF_PROCESS = ("/dev/fd/", "/proc/self/")
"""Where arguments name open files of this process, which another one does not have."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_forked() -> None:
    """Run this command in a process of the engine and end with its exit code. Returns if no engine takes it."""
    if not _can_be_forked():
        return
    home = Path(os.environ.get("LAKEHOUSE_HOME") or ".lakehouse")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        try:
            with address(home / "engine" / "commands") as name:
                connection.connect(name)
            if user_of(connection) != os.getuid():
                return
            send(connection, interpreter())
            receive(connection)
            send(connection, _command(), [each.fileno() for each in (sys.stdin, sys.stdout, sys.stderr)])
            _, [process] = receive(connection)
        except OSError:
            return
        connection.settimeout(None)
        _end_like(process, connection)


def _can_be_forked() -> bool:
    arguments = sys.argv[1:]
    is_long = "--every" in arguments or not arguments or arguments[0] in OWN
    own_files = any(each.startswith(FILES_OF_PROCESS) for each in (*arguments, *os.environ.values()))
    return not is_long and not own_files and None not in (sys.stdin, sys.stdout, sys.stderr)


def _command() -> dict[str, Any]:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return {
        "arguments": sys.argv,
        "path": sys.path,
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "is_interruptible": signal.getsignal(signal.SIGINT) != signal.SIG_IGN,
        "streams": {
            name: _settings_of(each) for name, each in zip(("stdin", "stdout", "stderr"), streams, strict=True)
        },
    }


def _settings_of(stream: Any) -> dict[str, Any]:
    return {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering", "write_through")}


def _end_like(process: int, connection: socket.socket) -> NoReturn:
    """Hand on signals to the process until it has ended, and end as it did."""

    def hand_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, number)

    for number in FORWARDED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, hand_on)
    try:
        code = receive(connection)[0]["code"]
    except OSError:
        sys.stderr.write("lakehouse: the process that ran this command was killed: run it again\n")
        code = 1
    if code < 0:
        with suppress(OSError):  # of SIGKILL, which nothing can handle
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
