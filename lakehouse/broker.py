"""The broker: your own cluster if one is configured, else an embedded Pulsar that keeps all in `<home>/pulsar`."""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from lakehouse.artifacts import pulsar_home
from lakehouse.endpoint import Endpoint, call_admin
from lakehouse.errors import BrokerError
from lakehouse.java import java_home
from lakehouse.locks import exclusive
from lakehouse.settings import Settings
from lakehouse.waiting import waiting

HOST = "127.0.0.1"
STOP_TIMEOUT = 20.0
"""Seconds that the embedded broker gets to stop by itself."""


def endpoint(settings: Settings) -> Endpoint:
    """The configured cluster, or the running embedded broker. Raises BrokerError if there is neither."""
    if settings.pulsar.service_url and settings.pulsar.admin_url:
        return Endpoint(service_url=settings.pulsar.service_url, admin_url=settings.pulsar.admin_url)
    if (found := running(settings)) is None:
        raise BrokerError(
            "no broker is running: start it with `lakehouse up`, or set pulsar.service_url and pulsar.admin_url"
        )
    return found


def running(settings: Settings) -> Endpoint | None:
    """The embedded broker, if its process is there; it may be still starting."""
    return _endpoint(_ports(settings)) if _process(settings) else None


def start(settings: Settings) -> Endpoint:
    """Start the embedded broker, unless it runs, and wait until it is healthy.

    Raises BrokerError if a port is taken, or if the broker does not come up within `run.broker_timeout` seconds.
    """
    with exclusive(_folder(settings) / "lock"):
        ran = _process(settings) is not None
        found, process = _launch_once(settings)
        try:
            _wait_until_up(found, process, settings)
        except BaseException:
            if not ran:
                _end(process)
            raise
        return found


def launch(settings: Settings) -> None:
    """Begin to start the embedded broker, unless it runs; `start` waits for it. Raises BrokerError for a taken port."""
    with exclusive(_folder(settings) / "lock"):
        _launch_once(settings)


def _launch_once(settings: Settings) -> tuple[Endpoint, psutil.Process]:
    process = _process(settings)
    if process is not None:
        return _endpoint(_ports(settings)), process
    home = pulsar_home(settings.cache)
    ports = _choose_ports(settings)
    process = psutil.Process(_launch(home, ports, settings).pid)
    try:
        _write_state(settings, {"pid": process.pid, "ports": ports})
    except BaseException:
        _end(process)
        raise
    return _endpoint(ports), process


def stop(settings: Settings) -> bool:
    """Stop the embedded broker, and return when its process is gone; False if it was not running."""
    process = _process(settings)
    if process is None:
        return False
    with waiting("Stopping the broker"):
        _end(process)
    return True


def wait_until_healthy(endpoint: Endpoint, settings: Settings) -> None:
    """Wait until a cluster answers.

    Raises BrokerError after `run.broker_timeout` seconds, or if it refuses the token.
    """
    message = f"Waiting for the broker at {endpoint.admin_url}"
    if not _wait(lambda: _answers("brokers/ready", endpoint, settings), message, settings):
        raise BrokerError(f"{endpoint.admin_url}: no answer from the broker in {settings.run.broker_timeout:g} s")


def _wait_until_up(endpoint: Endpoint, process: psutil.Process, settings: Settings) -> None:
    def up_or_dead() -> bool:
        # The default namespace is the last thing that a new standalone broker makes.
        return not _alive(process) or all(
            _answers(path, endpoint, settings) for path in ("brokers/health", "namespaces/public/default")
        )

    in_time = _wait(up_or_dead, f"Starting the broker at {endpoint.service_url}", settings)
    if not _alive(process):
        raise BrokerError(f"the broker died while starting; see {_log(settings)}")
    if not in_time:
        raise BrokerError(f"the broker was not up in {settings.run.broker_timeout:g} s; see {_log(settings)}")


def _wait(condition: Callable[[], bool], message: str, settings: Settings) -> bool:
    """Whether `condition` came true in time; the message is shown only if it is not true at once."""
    if condition():
        return True
    deadline = time.monotonic() + settings.run.broker_timeout
    with waiting(message):
        while time.monotonic() < deadline:
            time.sleep(0.2)
            if condition():
                return True
    return False


def _answers(path: str, endpoint: Endpoint, settings: Settings) -> bool:
    try:
        return call_admin("GET", path, endpoint, settings).ok
    except BrokerError as error:
        if "token was refused" in str(error):
            raise
        return False


def _launch(home: Path, ports: dict[str, int], settings: Settings) -> subprocess.Popen[bytes]:
    folder = _folder(settings)
    _configuration(settings).write_text(_configured((home / "conf" / "standalone.conf").read_text(), ports))
    command: list[str | Path] = [home / "bin" / "pulsar", "standalone", "--no-functions-worker", "--no-stream-storage"]
    command += ["--metadata-dir", folder / "metadata", "--bookkeeper-dir", folder / "bookkeeper"]
    command += ["--config", _configuration(settings), "--advertised-address", HOST]
    environment = {
        "PULSAR_LOG_LEVEL": "warn",
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "PULSAR_LOG_DIR": str(folder),
        "PULSAR_MEM": f"-Xms256m -Xmx{settings.pulsar.memory} -XX:MaxDirectMemorySize={settings.pulsar.memory}",
        # It has little to do: compile quickly, to code that is slower. The start takes half the work.
        "PULSAR_GC": "-XX:+UseG1GC -XX:TieredStopAtLevel=1",
        "PULSAR_GC_LOG": "-Xlog:gc=off",
    }
    with _log(settings).open("wb") as log:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
        )


def _configured(text: str, ports: dict[str, int]) -> str:
    values = {
        "brokerServicePort": str(ports["broker"]),
        "webServicePort": str(ports["web"]),
        "bindAddress": HOST,
        "listeningInterface": _loopback(),  # the same for the bookkeeper
        "webSocketServiceEnabled": "false",
        # A topic without traffic is no reason to delete it.
        "brokerDeleteInactiveTopicsEnabled": "false",
    }
    for name in values:
        text = re.sub(rf"^{name}=.*\n", "", text, flags=re.MULTILINE)
    return text + "".join(f"\n{name}={value}" for name, value in values.items()) + "\n"


def _loopback() -> str:
    """The name of the network interface that has the local address."""
    interfaces = psutil.net_if_addrs().items()
    return next(name for name, addresses in interfaces if any(address.address == HOST for address in addresses))


def _choose_ports(settings: Settings) -> dict[str, int]:
    """The configured ports, else those of the last start if they are still free, else free ones."""
    fixed = {"broker": settings.pulsar.broker_port, "web": settings.pulsar.web_port}
    last = _ports(settings)
    chosen: dict[str, int] = {}
    for name, port in fixed.items():
        if port and not _is_free(port):
            raise BrokerError(
                f"pulsar.{name}_port {port} is taken by another program: set another, or 0 for a free one"
            )
        wanted = port or last.get(name, 0)
        chosen[name] = wanted if wanted and _is_free(wanted) else _free_port()
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _process(settings: Settings) -> psutil.Process | None:
    """The recorded process, if it is alive and is this home's broker: its command line names our configuration."""
    try:
        process = psutil.Process(_state(settings)["pid"])
        ours = str(_configuration(settings)) in process.cmdline()
    except (KeyError, psutil.Error):
        return None
    return process if ours else None


def _alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def _end(process: psutil.Process) -> None:
    try:
        process.terminate()
        process.wait(STOP_TIMEOUT)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT)
    except psutil.NoSuchProcess:
        return


def _endpoint(ports: dict[str, int]) -> Endpoint:
    return Endpoint(service_url=f"pulsar://{HOST}:{ports['broker']}", admin_url=f"http://{HOST}:{ports['web']}")


def _folder(settings: Settings) -> Path:
    return settings.home / "pulsar"


def _configuration(settings: Settings) -> Path:
    return _folder(settings) / "standalone.conf"


def _log(settings: Settings) -> Path:
    return _folder(settings) / "broker.log"


def _state(settings: Settings) -> dict[str, Any]:
    """The process and the ports of the last start; empty before the first."""
    file = _folder(settings) / "broker.json"
    state: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return state


def _ports(settings: Settings) -> dict[str, int]:
    return dict(_state(settings).get("ports", {}))


def _write_state(settings: Settings, state: dict[str, Any]) -> None:
    file = _folder(settings) / "broker.json"
    draft = file.with_suffix(".part")
    draft.write_text(json.dumps(state))
    draft.replace(file)
