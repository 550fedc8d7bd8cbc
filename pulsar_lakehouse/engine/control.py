"""Starts the engine of a home, asks it for its state, and ends it."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from pulsar_lakehouse.engine.wire import PATIENCE, address, receive, send
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.settings import Settings, environment_of_others


def folder(settings: Settings) -> Path:
    return settings.home / "engine"


def start(settings: Settings) -> bool:
    """Start the engine, unless it runs; returns whether there is one. There is none if `engine.idle_minutes` is 0.

    It begins without a JVM: the first command that borrows one gives it the properties. If another engine of this home
    is about to end, it begins after that. Raises LakehouseError if one runs that does not answer.
    """
    if not settings.engine.idle_minutes:
        return False
    if state(settings) is None:
        log = settings.home / "logs" / "engine.log"
        for each in (folder(settings), log.parent):
            each.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "pulsar_lakehouse.engine.keeper"]
        with log.open("ab") as output:
            engine = subprocess.Popen(
                [*command, str(folder(settings)), str(settings.engine.idle_minutes * 60)],
                env=environment_of_others(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
            )
        wait_until(lambda: state(settings) is not None or engine.poll() is not None, "Starting the engine", PATIENCE)
    return True


def state(settings: Settings) -> dict[str, Any] | None:
    """What the engine says of itself; None if there is none. Raises LakehouseError if it does not answer."""
    return _ask("state", settings)


def stop(settings: Settings) -> dict[str, Any] | None:
    """Let the engine end, once the command that has its JVM gives it back. Returns its last state, None without one."""
    return _ask("end", settings)


def _ask(wish: str, settings: Settings) -> dict[str, Any] | None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        try:
            with address(folder(settings) / "socket") as name:
                connection.connect(name)
            send(connection, {"wish": wish})
            found: dict[str, Any] = receive(connection)[0]
        except TimeoutError as error:
            raise LakehouseError(
                f"the engine does not answer: kill the process that {folder(settings) / 'lock'} names"
            ) from error
        except OSError:
            return None
    return found
