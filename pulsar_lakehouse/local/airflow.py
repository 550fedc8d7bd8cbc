"""A local Airflow in `<home>/airflow`, with four processes and a database, for those without an installation."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import psutil
import requests

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.local import airflow_database
from pulsar_lakehouse.local.processes import HOST, begun_by, choose_port, end, read_state, write_state
from pulsar_lakehouse.locks import exclusive
from pulsar_lakehouse.progress import spinner, wait_until
from pulsar_lakehouse.settings import Settings

SHIPPED = Path(__file__).parent.parent / "dags"
"""The folder of the DAGs that come with this package."""
PROGRAM = (sys.executable, "-m", "airflow")
SCHEDULER = (sys.executable, "-m", "pulsar_lakehouse.local.scheduler")
COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
ALONE = ("scheduler", "triggerer")
"""Components that would serve their logs on all network interfaces. The web page reads the files instead."""
DATABASE = "postgres"
USER = "admin"
START_TIMEOUT, STOP_TIMEOUT = 180.0, 15.0
POOL = ("gold", "1", "Tasks that write gold, one at a time")


@dataclass(frozen=True, kw_only=True)
class Airflow:
    url: str
    user: str
    password: str


def start(settings: Settings) -> Airflow:
    """Start Airflow, unless it runs, and wait until it is healthy.

    Raises LakehouseError if a port is taken, or if one of its processes dies or is not healthy in time.
    """
    folder = _folder(settings)
    with exclusive(folder / "lock"):
        if (found := running(settings)) is not None:
            return found
        _end(settings)  # what an Airflow that died has left
        last, started = read_state(_state_file(settings)), datetime.now(UTC)
        try:
            port = choose_port("airflow.port", settings.airflow.port, last.get("ports", {}).get("web", 0))
        except OSError as error:
            raise LakehouseError(str(error)) from error
        password = last.get("password") or secrets.token_urlsafe(12)
        write_state(_state_file(settings), {"ports": {"web": port}, "password": password, "processes": {}})
        found = _found(settings)
        try:
            _prepare(settings, found)
            for name in COMPONENTS:
                with _log(name, settings).open("wb") as log:
                    _note(name, _launch(name, log, settings), settings)
            _wait_until_up(found, started, settings)
        except BaseException:
            _end(settings)
            raise
        return found


def dags_folder(settings: Settings) -> Path:
    """The project's `dags`, beside its declarations; if there is none, those of this package."""
    own = settings.declarations.parent / "dags"
    return own if own.is_dir() else SHIPPED


def stop(settings: Settings) -> bool:
    """Stop Airflow and everything it started, including Spark drivers; returns whether anything was running."""
    if not _processes(settings):
        return False
    with spinner("Stopping Airflow"):
        return _end(settings)


def running(settings: Settings) -> Airflow | None:
    """The local Airflow, if all its processes are running."""
    leaders = {pid for pid, _ in _leaders(settings).values()}
    is_whole = leaders and leaders <= {process.pid for process in _processes(settings)}
    return _found(settings) if is_whole else None


def _end(settings: Settings) -> bool:
    ended = False
    while processes := _processes(settings, but=DATABASE):  # a process may have started another one meanwhile
        end(processes, STOP_TIMEOUT)
        ended = True
    database = _processes(settings)
    end(database, STOP_TIMEOUT, by=airflow_database.STOP)
    return ended or bool(database)


def _processes(settings: Settings, *, but: str = "") -> list[psutil.Process]:
    """All processes that Airflow started, including those that outlive it, without those of the component `but`."""
    return begun_by(dict(leader for name, leader in _leaders(settings).items() if name != but))


def _leaders(settings: Settings) -> dict[str, tuple[int, float]]:
    """The processes of the last start, by component: process id and creation time."""
    leaders: dict[str, tuple[int, float]] = read_state(_state_file(settings)).get("processes", {})
    return leaders


def _note(name: str, process: psutil.Process, settings: Settings) -> None:
    state = read_state(_state_file(settings))
    state["processes"][name] = (process.pid, process.create_time())
    write_state(_state_file(settings), state)


def _prepare(settings: Settings, found: Airflow) -> None:
    """Start the database, and bring its tables to this version of Airflow."""
    data = _folder(settings) / DATABASE
    prepared = data / "prepared"
    is_new = not prepared.exists()
    with spinner("Preparing Airflow's database"):
        with _log(DATABASE, settings).open("wb") as log:
            if is_new:
                airflow_database.create(data, log)
            _note(DATABASE, airflow_database.launch(data, log), settings)
        while not airflow_database.is_ready(data):
            _refuse_dead(settings)
            time.sleep(0.1)
        _configure(settings, found, database=airflow_database.address(data))
        _run(["db", "migrate"], settings)
        if is_new:
            _run(["pools", "set", *POOL], settings)
            prepared.touch()


def _configure(settings: Settings, found: Airflow, *, database: str) -> None:
    folder = _folder(settings)
    sections: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": dags_folder(settings),
            "load_examples": False,
            "dags_are_paused_at_creation": False,
            "executor": "LocalExecutor",
            "parallelism": settings.airflow.parallelism,
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_passwords_file": folder / "passwords.json",
            "execution_api_server_url": f"{found.url}/execution/",
        },
        "database": {"sql_alchemy_conn": database},
        "api": {
            "host": HOST,
            "port": found.url.rpartition(":")[2],
            "base_url": found.url,
            "workers": 1,
            "secret_key": secrets.token_urlsafe(32),
        },
        "api_auth": {"jwt_secret": secrets.token_urlsafe(32)},
        "logging": {
            "base_log_folder": folder / "logs",
            "file_task_handler_new_folder_permissions": "0o700",
            "file_task_handler_new_file_permissions": "0o600",
        },
        "dag_processor": {"min_file_process_interval": 60},
    }
    lines = (
        f"[{section}]\n" + "".join(f"{name} = {str(value).replace('%', '%%')}\n" for name, value in options.items())
        for section, options in sections.items()
    )
    for file in (folder / "airflow.cfg", folder / "passwords.json"):
        file.touch(mode=0o600)
    (folder / "airflow.cfg").write_text("\n".join(lines))
    write_state(folder / "passwords.json", {USER: found.password})


def _run(arguments: Sequence[str], settings: Settings) -> None:
    with _log("setup", settings).open("wb") as log:
        done = subprocess.run([*PROGRAM, *arguments], env=_environment(settings), stdout=log, stderr=log)
    if done.returncode != 0:
        raise LakehouseError(f"`airflow {' '.join(arguments)}` failed; see {_log('setup', settings)}")


def _launch(component: str, log: IO[bytes], settings: Settings) -> psutil.Process:
    return psutil.Popen(
        [
            *(SCHEDULER if component == "scheduler" else (*PROGRAM, component)),
            *(["--skip-serve-logs"] if component in ALONE else []),
        ],
        env=_environment(settings),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # by its session, everything that it starts can be found
    )


def _environment(settings: Settings) -> dict[str, str]:
    """The environment of this shell without the settings of another Airflow, such as its database."""
    folder = _folder(settings)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")},
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW_CONFIG": str(folder / "airflow.cfg"),
        "LAKEHOUSE_HOME": str(settings.home),
        "LAKEHOUSE_DECLARATIONS": str(settings.declarations),
    }


def _wait_until_up(airflow: Airflow, started: datetime, settings: Settings) -> None:
    def is_up() -> bool:
        _refuse_dead(settings)
        return _is_healthy(airflow, started)

    if not wait_until(is_up, f"Starting Airflow at {airflow.url}", START_TIMEOUT):
        raise LakehouseError(f"Airflow was not healthy within {START_TIMEOUT:g} s; see {_log('*', settings)}")


def _refuse_dead(settings: Settings) -> None:
    alive = {process.pid for process in _processes(settings)}
    for name, (pid, _) in _leaders(settings).items():
        if pid not in alive:
            raise LakehouseError(f"Airflow's {name} died while starting; see {_log(name, settings)}")


def _is_healthy(airflow: Airflow, started: datetime) -> bool:
    """Whether all components report that they are healthy, with a heartbeat after `started`."""
    with suppress(requests.RequestException, ValueError, KeyError):
        with requests.Session() as session:
            session.trust_env = False  # no proxy for an address of this machine
            health = session.get(f"{airflow.url}/api/v2/monitor/health", timeout=5).json()
        return all(
            health[name]["status"] == "healthy"
            and datetime.fromisoformat(health[name][f"latest_{name}_heartbeat"]) > started
            for name in ("scheduler", "dag_processor", "triggerer")
        )
    return False


def _found(settings: Settings) -> Airflow:
    state = read_state(_state_file(settings))
    return Airflow(url=f"http://{HOST}:{state['ports']['web']}", user=USER, password=state["password"])


def _folder(settings: Settings) -> Path:
    return settings.home / "airflow"


def _state_file(settings: Settings) -> Path:
    return _folder(settings) / "state.json"


def _log(component: str, settings: Settings) -> Path:
    return _folder(settings) / f"{component}.log"
