"""What lands of a service that answers by HTTP: each answer once, whatever it does between them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiolimiter import AsyncLimiter

from pulsar_lakehouse.bronze import services
from pulsar_lakehouse.bronze.services import ServiceLanding, _Asked, is_left_alone
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.errors import SourceError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.records import snapshot_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import is_stored
from tests.http_service import Geocoder, geocode_at, geocoder
from tests.lake import own_home

Answers = list[tuple[str, Any]]


@pytest.fixture
def own(lake: Lake, tmp_path: Path) -> Lake:
    return Lake(lake.spark, own_home(lake.settings, tmp_path / "home"))


@pytest.fixture
def server() -> Iterator[Geocoder]:
    with geocoder() as started:
        yield started


def kept(settings: Settings) -> Answers:
    rows = query(settings, "SELECT key, payload FROM bronze.geocode ORDER BY key")
    return [(key, json.loads(payload)) for key, payload in rows.fetchall()]


def landing(lake: Lake, service: Service, keys: list[str]) -> ServiceLanding:
    def unanswered() -> list[str]:
        known = {key for key, _ in kept(lake.settings)} if is_stored(lake.settings, "bronze.geocode") else set()
        return [key for key in keys if key not in known]

    return ServiceLanding(lake, service, unanswered)


def test_answers_land_as_messages(own: Lake, server: Geocoder) -> None:
    asked = landing(own, geocode_at(server.url), ["Rua A 1", "nowhere", "elsewhere"])
    assert (asked(Permit()), asked(Permit())) == (3, 0)
    assert kept(own.settings) == [
        ("Rua A 1", {"city": "Porto", "lat": 1.5, "address": "Rua A 1"}),
        ("elsewhere", {"address": "elsewhere"}),
        ("nowhere", {"city": "Nowhere", "address": "nowhere"}),
    ]
    record = snapshot_record(own.settings, "geocode")
    assert (len(server.calls), record and (record.rows, record.changes)) == (3, (3, 3))


def test_a_call_that_fails_is_repeated(own: Lake, server: Geocoder) -> None:
    assert landing(own, geocode_at(server.url), ["flaky"])(Permit()) == 1
    assert server.calls == ["flaky"] * 3


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("fails", "fails has no answer: HTTPStatusError: Server error '503 Service Unavailable' for url "),
        ("hangs up", "hangs up has no answer: RemoteProtocolError: Server disconnected without sending a response."),
        ("never", "never has no answer: TimeoutError: no answer within 1 second"),
    ],
)
def test_what_fails_in_the_end_is_told_and_the_others_land(own: Lake, server: Geocoder, key: str, line: str) -> None:
    with pytest.raises(SourceError) as error:
        landing(own, geocode_at(server.url, retries=1), [key, "Rua A 1"])(Permit())
    assert (error.value.landed, [address for address, _ in kept(own.settings)]) == (1, ["Rua A 1"])
    assert str(error.value).startswith(f"service geocode: {line}")
    assert server.counts[key] == 2


def test_nonsense_lands_as_it_is(own: Lake, server: Geocoder) -> None:
    assert landing(own, geocode_at(server.url), ["nonsense as text", "nonsense"])(Permit()) == 2
    assert kept(own.settings) == [
        ("nonsense", {"city": "?", "lat": "north", "address": "nonsense"}),
        ("nonsense as text", "somewhere"),
    ]


def test_many_calls_run_at_once_at_the_declared_rate(own: Lake, server: Geocoder) -> None:
    keys = [f"slow {number}" for number in range(60)]
    assert landing(own, geocode_at(server.url, rate=100), keys)(Permit()) == 60
    seconds = server.times[-1] - server.times[0]
    assert seconds >= 0.55  # 59 pauses of a hundredth
    assert server.most > 4


def test_a_service_that_is_down_is_left_alone(own: Lake, server: Geocoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried with one call once a minute is over, and with all when that is answered."""
    keys = [f"n{number}" for number in range(500)]
    asked, server.is_down = landing(own, geocode_at(server.url, retries=1), keys), True
    with pytest.raises(SourceError, match="it is not asked for others until it answers again"):
        asked(Permit())
    first = len(server.calls)
    with pytest.raises(SourceError):
        asked(Permit())
    assert (20 <= first <= services.AT_ONCE + 20, len(server.calls)) == (True, first)
    monkeypatch.setattr(services, "RETRY_SECONDS", 0.0)
    with pytest.raises(SourceError):
        asked(Permit())
    assert len(server.calls) == first + 1
    server.is_down = False
    asked.pauses.clear()
    assert asked(Permit()) == 500
    assert len(server.calls) == first + 1 + 500


async def refuses(address: str) -> dict[str, str]:
    if address == "slow":
        await asyncio.sleep(0.3)
        return {}
    raise ConnectionError(address)


def called(service: Service, keys: list[str]) -> tuple[list[str], list[str], bool]:
    """What was called, what has failed in the end, and whether the circuit is open then."""
    calls: list[str] = []

    async def geocode(address: str) -> object:
        calls.append(address)
        return await service(address)

    noted = replace(service, function=geocode)
    asked = _Asked(noted, keys, AsyncLimiter(1, 1 / noted.rate), is_probed=False)
    asyncio.run(asked.ask_all())
    return calls, [key for key, _ in asked.failures], asked.is_open


def test_no_call_begins_or_is_repeated_when_twenty_in_a_row_have_failed() -> None:
    keys = [f"n{number}" for number in range(100)]
    calls, _, is_open = called(Service(refuses, returns="city STRING", rate=200), keys)
    assert (len(calls), is_open) == (20, True)


def test_a_call_that_answers_late_does_not_close_the_circuit() -> None:
    keys = ["slow", *(f"n{number}" for number in range(40))]
    calls, _, is_open = called(Service(refuses, returns="city STRING", rate=200, retries=0), keys)
    assert (calls[0], len(calls), is_open) == ("slow", 21, True)


def test_a_call_that_there_is_no_time_to_repeat_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ASK_SECONDS", 0.5)
    assert called(Service(refuses, returns="city STRING", rate=1), ["n"]) == (["n"], ["n"], False)


def test_a_key_that_failed_is_left_alone_while_others_are_asked(own: Lake, server: Geocoder) -> None:
    keys = ["fails"]
    asked = landing(own, geocode_at(server.url, retries=0), keys)
    with pytest.raises(SourceError):
        asked(Permit())
    keys.append("Rua A 1")
    with pytest.raises(SourceError, match="service geocode: fails has no answer: ") as error:
        asked(Permit())
    assert (error.value.landed, server.calls) == (1, ["fails", "Rua A 1"])


def test_a_function_that_blocks_is_told(own: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    async def geocode(address: str) -> None:
        time.sleep(4)

    monkeypatch.setattr(services, "ASK_SECONDS", 0.5)
    monkeypatch.setattr(services, "BLOCKED_SECONDS", 0.5)
    blocked, keys = Service(geocode, returns="city STRING", timeout="1 second", retries=0), ["a", "b"]
    with pytest.raises(SourceError, match="service geocode: 2 keys have no answer: a service blocks: call nothing in"):
        landing(own, blocked, keys)(Permit())
    assert services.is_left_alone(own.settings, blocked, keys)


def test_a_function_that_can_not_be_stopped_or_told_fails_alone(own: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on when it is cancelled; its error has no text; it raises what ends a task, or a process."""
    is_over = asyncio.Event()

    class WordlessError(Exception):
        def __str__(self) -> str:
            raise ValueError

    async def geocode(address: str) -> dict[str, str]:
        while address == "goes on" and not is_over.is_set():
            with suppress(asyncio.CancelledError):
                await is_over.wait()
        if address in raised:
            raise raised[address]
        return {"city": address}

    raised = {"wordless": WordlessError(), "cancelled": asyncio.CancelledError(), "exit": SystemExit(1)}
    monkeypatch.setattr(services, "BLOCKED_SECONDS", 0.0)
    stubborn = Service(geocode, returns="city STRING", timeout="1 second", retries=0, rate=1000)
    asked = landing(own, stubborn, ["goes on", *raised, "good"])
    with pytest.raises(SourceError, match="service geocode: 4 keys have no answer: ") as error:
        asked(Permit())
    is_over.set()
    assert (error.value.landed, [key for key, _ in kept(own.settings)]) == (1, ["good"])
    assert asked.pauses.keys() == {"goes on", *raised}


def test_calls_are_not_repeated_when_time_is_over(own: Lake, server: Geocoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "ASK_SECONDS", 0.5)
    began = time.monotonic()
    with pytest.raises(SourceError, match="fails has no answer: HTTPStatusError"):
        landing(own, geocode_at(server.url, retries=100), ["fails"])(Permit())
    assert time.monotonic() - began < 5


def test_a_key_that_fails_keeps_no_others_waiting(own: Lake, server: Geocoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round has time for some keys. It is left alone once all others have an answer."""
    monkeypatch.setattr(services, "ASK_SECONDS", 0.3)
    keys, rounds = ["fails", *(f"n{number}" for number in range(9))], 0
    service = geocode_at(server.url, rate=20, retries=0)
    asked = landing(own, service, keys)
    while not services.is_left_alone(own.settings, service, asked.unanswered()) and rounds < 9:
        rounds += 1
        with suppress(SourceError):
            asked(Permit())
    assert (asked.unanswered(), 1 < rounds < 9) == (["fails"], True)


def test_the_rate_holds_from_round_to_round(own: Lake, server: Geocoder) -> None:
    keys = ["n1"]
    asked = landing(own, geocode_at(server.url, rate=2), keys)
    asked(Permit())
    keys.append("n2")
    asked(Permit())
    assert server.times[1] - server.times[0] > 0.45


def test_asking_ends_when_the_step_does(own: Lake, server: Geocoder) -> None:
    permit = Permit()
    asked = landing(own, geocode_at(server.url, timeout="1 minute"), ["never"])
    permit.withdraw()
    with pytest.raises(CancelledError):
        asked(permit)


KILLED = """
import sys
from pulsar_lakehouse.bronze.services import ServiceLanding, is_left_alone
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.tables.lake import Lake
from tests.bronze.test_services import landing
from tests.http_service import geocode_at

class Created(Lake):
    def create(self, table):
        pass

url, *keys = sys.argv[1:]
print(landing(Created(None, load_settings()), geocode_at(url, rate=100), keys)(Permit()))
"""


def test_what_was_kept_is_never_asked_again_though_the_process_is_killed(own: Lake, server: Geocoder) -> None:
    """Killed again and again between calls and commits, it loses nothing, and asks again only what was not kept."""
    keys = [f"slow {number}" for number in range(150)]
    landing(own, geocode_at(server.url), [])(Permit())
    given = {**os.environ, "LAKEHOUSE_HOME": str(own.settings.home), "PYTHONPATH": str(Path.cwd())}
    killed = 0
    for _ in range(20):
        before, known = len(server.calls), {key for key, _ in kept(own.settings)}
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, server.url, *keys], env=given, stdout=subprocess.PIPE, text=True
        )
        while process.poll() is None and len(server.calls) < before + 110:
            time.sleep(0.01)
        if process.poll() is None:
            time.sleep(0.1 * (killed % 4))
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait()
        assert known.isdisjoint(server.calls[before:])
        if process.returncode == 0:
            break
    landed = [key for key, _ in kept(own.settings)]
    assert (landed, killed > 0) == (sorted(keys), True)


def test_only_what_failed_is_left_alone_by_other_processes(own: Lake, server: Geocoder) -> None:
    service = geocode_at(server.url, retries=0)
    with pytest.raises(SourceError):
        landing(own, service, ["fails"])(Permit())
    assert is_left_alone(own.settings, service, ["fails"])
    assert not is_left_alone(own.settings, service, ["fails", "Rua A 1"])
