"""Helpers for servers that run on this machine: choose ports, keep state files, and find and end processes."""

import json
import os
import random
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

HOST = "127.0.0.1"


def choose_port(name: str, fixed: int, last: int) -> int:
    """The `fixed` port, else that of the `last` start if it is still free, else any free one. 0 means none.

    Raises OSError, which names the setting `name`, if the fixed port is taken.
    """
    if fixed and not _is_free(fixed):
        raise OSError(f"{name} {fixed} is taken by another program: set another, or 0 for a free one")
    wanted = fixed or last
    return wanted if wanted and _is_free(wanted) else free_port()


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def end(processes: Sequence[psutil.Process], timeout: float, *, by: signal.Signals = signal.SIGTERM) -> bool:
    """Send the processes the signal `by`, and kill those that have not ended after `timeout` seconds.

    Returns whether all ended without a kill, after they are gone.
    """
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(by)
    _, left = psutil.wait_procs(processes, timeout)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout)
    return not left


def begun_by(leaders: Mapping[int, float]) -> list[psutil.Process]:
    """All live processes in the sessions of these leaders, which may have ended: all that they have started.

    `leaders` maps process ids to creation times, in epoch seconds, because the system reuses ids.
    """
    sessions = {pid for pid, created in leaders.items() if created > psutil.boot_time() and not _is_other(pid, created)}
    found = []
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.getsid(process.pid) in sessions and is_alive(process):
                found.append(process)
    return found


def _is_other(pid: int, created: float) -> bool:
    with suppress(psutil.NoSuchProcess):
        return abs(psutil.Process(pid).create_time() - created) > 1
    return False


def read_state(file: Path) -> dict[str, Any]:
    """The content of a state file; empty if there is none."""
    state: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return state


def write_state(file: Path, state: Mapping[str, Any]) -> None:
    draft = file.with_suffix(".part")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(state))
    draft.replace(file)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


def free_port() -> int:
    """A free port below those that Linux gives to outgoing connections: one of these could take it before a server.

    Raises OSError if there is none.
    """
    for port in random.sample(range(20_000, 32_768), 1_000):
        if _is_free(port):
            return port
    raise OSError(f"no free port on {HOST}")
