"""Commands that people start on the page: processes, as they need Spark. Their output is in `<home>/logs/page`."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pulsar_lakehouse.settings import Settings

COMMAND = (sys.executable, "-P", "-m", "pulsar_lakehouse.cli")
SHOWN = 10
"""The last commands, which are listed."""
RUN = '"$@" >"$0.log" 2>&1; echo $? >"$0.code"'
"""Runs a command in a shell, whose name is the path of its files. So its end is noted without this process, too."""


@dataclass(frozen=True, kw_only=True)
class Started:
    command: str
    who: str
    at: float
    """In seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class State:
    started: Started
    running: bool
    code: int | None
    """The exit code; None while it runs, and if it was killed."""
    log: str
    """Within `<home>/logs`."""


def start(settings: Settings, arguments: Sequence[str], who: str) -> None:
    """Start a `lakehouse` command for somebody, under whose name it notes what it does, without waiting for it."""
    folder, now = _folder(settings), datetime.now(UTC)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / f"{now:%Y%m%dT%H%M%S.%f}.json"
    told = Started(command=" ".join(("lakehouse", *arguments)), who=who, at=now.timestamp())
    with file.open("w") as held:
        json.dump(asdict(told), held)
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)  # the process inherits it, and holds it until it ends
        subprocess.Popen(
            ["/bin/sh", "-c", RUN, file.with_suffix(""), *COMMAND, *arguments],
            env={**os.environ, "LOGNAME": who, "LAKEHOUSE_HOME": str(settings.home)},  # `getpass.getuser` tells LOGNAME
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # it outlives this server
            pass_fds=[held.fileno()],
        )


def states(settings: Settings) -> Iterator[State]:
    """The last commands, newest first."""
    for file in sorted(_folder(settings).glob("*.json"), reverse=True)[:SHOWN]:
        with suppress(OSError, ValueError, TypeError), file.open() as held:
            started, code = Started(**json.load(held)), file.with_suffix(".code")
            log = str(file.with_suffix(".log").relative_to(settings.home / "logs"))
            ended = int(code.read_text()) if code.exists() else None
            yield State(started=started, running=ended is None and _is_held(held.fileno()), code=ended, log=log)


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _folder(settings: Settings) -> Path:
    return settings.home / "logs" / "page"
