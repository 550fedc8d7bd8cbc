"""The broker: your own cluster if one is configured, else an embedded Pulsar that keeps its data in `<home>/pulsar`."""

import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from pulsar_lakehouse.downloads.artifacts import pulsar_home
from pulsar_lakehouse.errors import BrokerError, RefusedError
from pulsar_lakehouse.jvm.class_archives import archive_options, settle
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.local.processes import HOST, begun_by, choose_port, end, is_alive, read_state, write_state
from pulsar_lakehouse.locks import exclusive
from pulsar_lakehouse.progress import spinner, wait_until
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin, check_certificate, check_listener
from pulsar_lakehouse.settings import Settings, environment_of_others

STOP_TIMEOUT, KEEP_TIMEOUT = 20.0, 60.0
"""Seconds for the embedded broker to stop before it is killed: normally, and when it writes a class archive."""

COMMAND_TIMEOUT = 2.0
"""Seconds for a process that becomes another to show its command line."""

PROGRAM = "broker"
STANDALONE = ("standalone", "--no-functions-worker", "--no-stream-storage")


def endpoint(settings: Settings) -> Endpoint:
    """The configured cluster, or the running embedded broker. Raises BrokerError if there is neither."""
    if settings.pulsar.service_url and settings.pulsar.admin_url:
        return Endpoint(service_url=settings.pulsar.service_url, admin_url=settings.pulsar.admin_url)
    if found := running(settings):
        return found
    to_do = "start it with `lakehouse up`, or set pulsar.service_url and pulsar.admin_url"
    raise BrokerError(f"no broker is running: {to_do}")


def running(settings: Settings) -> Endpoint | None:
    """The embedded broker, if its process exists; it may still be starting. None if not."""
    return _endpoint(settings) if _process(settings) else None


def start(settings: Settings) -> Endpoint:
    """Start the embedded broker unless it is running, and wait until it is healthy.

    Raises BrokerError if a port is taken, or if the broker ends or is not healthy within `run.broker_timeout` seconds.
    """
    with exclusive(_folder(settings) / "lock"):
        ran = _process(settings)
        process = ran or _launch(settings)
        found = _endpoint(settings)
        try:
            _wait_until_up(found, process, settings)
        except BaseException:
            if ran is None:
                _end(process)
            raise
        return found


def launch(settings: Settings, *, keep_classes: bool = False) -> None:
    """Start the embedded broker unless it is running, without waiting for it: `start` does that.

    If there is no class archive of the broker yet, `keep_classes` lets this JVM write one, see `stop`. Raises
    BrokerError if a port is taken.
    """
    with exclusive(_folder(settings) / "lock"):
        if _process(settings) is None:
            _launch(settings, keep_classes=keep_classes)


def stop(settings: Settings, *, keep_classes: bool = False) -> bool:
    """Stop the embedded broker and wait until its process is gone. Returns False if it was not running.

    With `keep_classes`, a broker that was launched with it writes its class archive: 90 MB, in about 8 seconds.
    """
    if (process := _process(settings)) is None:
        return False
    with spinner("Stopping the broker"):
        ended = _end(process, timeout=KEEP_TIMEOUT if keep_classes else STOP_TIMEOUT)
    if ended:
        write_state(_state_file(settings), {"ports": _ports(settings)})
    settle(PROGRAM, keep=keep_classes and ended)
    return True


def healthy_endpoint(settings: Settings) -> Endpoint:
    """The endpoint of the broker, once it answers. Raises the errors of `endpoint` and `wait_until_healthy`."""
    found = endpoint(settings)
    wait_until_healthy(found, settings)
    return found


def wait_until_healthy(endpoint: Endpoint, settings: Settings) -> None:
    """Wait until a cluster answers.

    Raises BrokerError after `run.broker_timeout` seconds. Raises RefusedError at once if the token or a certificate is
    rejected, or if the brokers don't know our listener.
    """
    message, told = f"Waiting for the broker at {endpoint.admin_url}", list[BrokerError]()
    if not wait_until(
        lambda: _answers("brokers/ready", endpoint, settings, told), message, settings.run.broker_timeout
    ):
        raise BrokerError(f"{told[-1]}, for {settings.run.broker_timeout:g} s") from told[-1]
    check_certificate(endpoint, settings)
    check_listener(endpoint, settings)


def _wait_until_up(endpoint: Endpoint, process: psutil.Process, settings: Settings) -> None:
    def is_up() -> bool:
        if not is_alive(process):
            raise BrokerError(f"the broker died while starting; see {_log(settings)}")
        # The default namespace is the last thing that a new standalone broker creates.
        return all(_answers(path, endpoint, settings) for path in ("brokers/health", "namespaces/public/default"))

    if not wait_until(is_up, f"Starting the broker at {endpoint.service_url}", settings.run.broker_timeout):
        raise BrokerError(f"the broker was not up in {settings.run.broker_timeout:g} s; see {_log(settings)}")


def _answers(path: str, endpoint: Endpoint, settings: Settings, told: list[BrokerError] | None = None) -> bool:
    """Whether the broker answers. If not, `told` gets the reason."""
    try:
        return call_admin("GET", path, endpoint, settings).ok
    except RefusedError:
        raise
    except BrokerError as error:
        if told is not None:
            told.append(error)
        return False


def _launch(settings: Settings, *, keep_classes: bool = False) -> psutil.Process:
    home, folder, ports = pulsar_home(settings.cache), _folder(settings), _choose_ports(settings)
    if "pid" in read_state(_state_file(settings)):
        _unregister_killed(home, settings)
    # The script can't handle spaces in options.
    archive = [] if " " in sys.prefix else archive_options(PROGRAM, [str(home)], keep=keep_classes)
    log_configuration = os.environ.get("PULSAR_LOG_CONF") or home / "conf" / "log4j2.yaml"
    _configuration(settings).write_text(_configured((home / "conf" / "standalone.conf").read_text(), ports))
    command: list[str | Path] = [home / "bin" / "pulsar", *STANDALONE]
    command += ["--metadata-dir", folder / "metadata", "--bookkeeper-dir", folder / "bookkeeper"]
    command += ["--config", _configuration(settings)]
    environment = {
        "PULSAR_LOG_LEVEL": "warn",
        **environment_of_others(),
        "JAVA_HOME": str(java_home()),
        "PULSAR_LOG_DIR": str(folder),
        "PULSAR_MEM": f"-Xms256m -Xmx{settings.pulsar.memory} -XX:MaxDirectMemorySize={settings.pulsar.memory}",
        # The broker has little to do: fast compilation to slower code halves the work of the start.
        "PULSAR_GC": " ".join(
            ["-XX:+UseG1GC -XX:TieredStopAtLevel=1", *archive, f"-Dlog4j.configurationFile={log_configuration}"]
        ),
        # The script adds this file's folder to the class path. If it had files, the JVM would not use a class archive.
        "PULSAR_LOG_CONF": str(home / "none" / "log4j2.yaml"),
        "PULSAR_GC_LOG": "-Xlog:gc=off",
    }
    with _log(settings).open("wb") as log:
        process = psutil.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
        )
    try:
        write_state(_state_file(settings), {"pid": process.pid, "ports": ports})
    except BaseException:
        _end(process)
        raise
    return process


def _unregister_killed(home: Path, settings: Settings) -> None:
    """Remove a killed broker from the list of bookies; the command that lists them has this effect.

    Otherwise the next broker sometimes takes its own entry for the old one, and renews it endlessly, which uses most of
    a core: https://github.com/apache/pulsar/issues/17759.
    """
    folder, configuration = _folder(settings), _folder(settings) / "bookkeeper.conf"
    configuration.write_text(f"metadataServiceUri=metadata-store:rocksdb://{folder}/metadata\n")
    environment = {
        **environment_of_others(),
        "JAVA_HOME": str(java_home()),
        "BOOKIE_CONF": str(configuration),
        "BOOKIE_LOG_DIR": str(folder),
        "BOOKIE_MEM": "-Xmx128m",
        "BOOKIE_GC": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    with (folder / "bookies.log").open("wb") as log, spinner("Clearing up after a broker that was killed"):
        command: list[str | Path] = [home / "bin" / "bookkeeper", "shell", "listbookies", "-rw"]
        with suppress(subprocess.TimeoutExpired):  # a busy broker is better than none
            subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=60)


def _configured(text: str, ports: dict[str, int]) -> str:
    values = {
        "brokerServicePort": str(ports["broker"]),
        "webServicePort": str(ports["web"]),
        "bindAddress": HOST,
        "advertisedAddress": HOST,
        "listeningInterface": loopback(),  # BookKeeper's setting for the same
        "webSocketServiceEnabled": "false",
        # Topics without traffic must not be deleted.
        "brokerDeleteInactiveTopicsEnabled": "false",
        "transactionCoordinatorEnabled": "true",
    }
    for name in values:
        text = re.sub(rf"^{name}=.*\n", "", text, flags=re.MULTILINE)
    return text + "".join(f"\n{name}={value}" for name, value in values.items()) + "\n"


def loopback() -> str:
    """The name of the loopback network interface."""
    interfaces = psutil.net_if_addrs().items()
    return next(name for name, addresses in interfaces if any(address.address == HOST for address in addresses))


def _choose_ports(settings: Settings) -> dict[str, int]:
    fixed = {"broker": settings.pulsar.broker_port, "web": settings.pulsar.web_port}
    last = _ports(settings)
    try:
        return {name: choose_port(f"pulsar.{name}_port", port, last.get(name, 0)) for name, port in fixed.items()}
    except OSError as error:
        raise BrokerError(str(error)) from error


def _process(settings: Settings) -> psutil.Process | None:
    """The recorded process, if it is alive and is this home's broker: its command line names our configuration."""
    try:
        process = psutil.Process(read_state(_state_file(settings))["pid"])
        ours = str(_configuration(settings)) in _command(process)
    except (KeyError, psutil.Error):
        return None
    return process if ours else None


def _command(process: psutil.Process) -> list[str]:
    """Its command line, which is empty for a moment while the broker's script becomes Java."""
    until = time.monotonic() + COMMAND_TIMEOUT
    while not (command := process.cmdline()) and time.monotonic() < until:
        time.sleep(0.01)
    return command


def _end(process: psutil.Process, *, timeout: float = STOP_TIMEOUT) -> bool:
    """End the broker's process and all that its script has started. Returns False if it had to be killed."""
    return end(begun_by({process.pid: process.create_time()}), timeout)


def _endpoint(settings: Settings) -> Endpoint:
    ports = _ports(settings)
    return Endpoint(service_url=f"pulsar://{HOST}:{ports['broker']}", admin_url=f"http://{HOST}:{ports['web']}")


def _folder(settings: Settings) -> Path:
    return settings.home / "pulsar"


def _configuration(settings: Settings) -> Path:
    return _folder(settings) / "standalone.conf"


def _log(settings: Settings) -> Path:
    return _folder(settings) / "broker.log"


def _state_file(settings: Settings) -> Path:
    """The file with the ports of the last start, and with the process id until the broker has stopped by itself."""
    return _folder(settings) / "broker.json"


def _ports(settings: Settings) -> dict[str, int]:
    return dict(read_state(_state_file(settings)).get("ports", {}))
