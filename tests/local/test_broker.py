import socket
from pathlib import Path

import psutil
import pytest

from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings, load_settings


def java_processes(home: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if str(home / "pulsar") in " ".join(process.info["cmdline"] or [])
    ]


def test_starting_twice_gives_the_same_broker(endpoint: Endpoint, settings: Settings) -> None:
    assert broker.start(settings) == broker.running(settings) == broker.endpoint(settings) == endpoint
    (process,) = java_processes(settings.home)
    assert process.name() == "java"


@pytest.mark.broker
def test_stop_leaves_no_process_and_a_restart_keeps_the_ports_and_clears_up_after_a_kill(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    first = broker.start(settings)
    assert broker.stop(settings)
    assert java_processes(tmp_path) == []
    assert broker.running(settings) is None
    assert not broker.stop(settings)
    assert broker.start(settings) == first
    cleared = tmp_path / "pulsar" / "bookies.log"
    assert not cleared.exists()
    (process,) = java_processes(tmp_path)
    process.kill()
    process.wait()
    broker.launch(settings)
    assert None not in [broker.running(settings) for _ in range(2_000)]  # also while its script becomes Java
    assert broker.stop(settings)
    assert "Deleting path: /ledgers/available/127.0.0.1" in cleared.read_text()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BrokerError, match=f"^pulsar.broker_port {port} is taken by another program: .+$"):
            broker.start(load_settings(home=tmp_path, pulsar={"broker_port": port}))
    assert java_processes(tmp_path) == []


@pytest.mark.broker
def test_a_broker_that_does_not_come_up_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=f"^the broker was not up in 0.5 s; see {tmp_path}/pulsar/broker.log$"):
        broker.start(load_settings(home=tmp_path, run={"broker_timeout": 0.5}))
    assert java_processes(tmp_path) == []


def test_a_broker_that_dies_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=f"^the broker died while starting; see {tmp_path}/pulsar/broker.log$"):
        broker.start(load_settings(home=tmp_path, pulsar={"memory": "1m"}))


def test_without_a_broker_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="start it with `lakehouse up`"):
        broker.endpoint(load_settings(home=tmp_path))


def test_a_configured_cluster_that_does_not_answer(tmp_path: Path) -> None:
    cluster = {"service_url": "pulsar://127.0.0.1:1", "admin_url": "http://127.0.0.1:1"}
    settings = load_settings(home=tmp_path, pulsar=cluster, run={"broker_timeout": 0.5})
    with pytest.raises(
        BrokerError, match=r"^http://127.0.0.1:1: no answer from the broker: ConnectionError, for 0.5 s$"
    ):
        broker.wait_until_healthy(broker.endpoint(settings), settings)
