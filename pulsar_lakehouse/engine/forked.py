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

from pulsar_lakehouse.engine.wire import PATIENCE, address, interpreter, receive, send

OWN = ("up", "down", "engine", "airflow")
"""Commands that start or end the engine itself, or others that outlive it."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_forked() -> None:
    """Run this command in a process of the engine and end with its exit code. Returns if no engine takes it."""
    if (sys.argv[1:] or ["--help"])[0] in OWN or None in (sys.stdin, sys.stdout, sys.stderr):
        return
    home = Path(os.environ.get("LAKEHOUSE_HOME") or ".lakehouse")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        try:
            with address(home / "engine" / "commands") as name:
                connection.connect(name)
            send(connection, interpreter())
            receive(connection)
            send(connection, _command(), [each.fileno() for each in (sys.stdin, sys.stdout, sys.stderr)])
            pid = receive(connection)[0]["pid"]
        except OSError:
            return
        connection.settimeout(None)
        _end_like(pid, connection)


def _command() -> dict[str, Any]:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return {
        "arguments": sys.argv,
        "path": sys.path,
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "ignored": [each for each in FORWARDED if signal.getsignal(each) == signal.SIG_IGN],
        "streams": {
            name: _settings_of(each) for name, each in zip(("stdin", "stdout", "stderr"), streams, strict=True)
        },
    }


def _settings_of(stream: Any) -> dict[str, Any]:
    by_line = stream.line_buffering or stream.write_through
    return {"encoding": stream.encoding, "errors": stream.errors, "line_buffering": by_line}


def _end_like(pid: int, connection: socket.socket) -> NoReturn:
    """Hand on signals until the process has ended, and end as it did."""

    def hand_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    for number in FORWARDED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, hand_on)
    try:
        code = receive(connection)[0]["code"]
    except OSError:
        sys.stderr.write("lakehouse: the engine was killed, and this command with it: run it again\n")
        code = 1
    if code < 0:
        with suppress(OSError):  # of SIGKILL, which nothing can handle
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
