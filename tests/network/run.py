"""The product behind proxies that fail: its broker's two ports, and perhaps an object store."""

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pulsar_lakehouse.local import broker
from pulsar_lakehouse.local.processes import HOST, free_port
from pulsar_lakehouse.settings import Settings, load_settings
from tests.chaos.world import LAKEHOUSE, NotSurvivedError, World
from tests.network.proxy import Fault, Proxy, proxied
from tests.s3 import CREDENTIALS, Server, in_store

BOUND = 240.0
"""Seconds within which a command ends, whatever the network does."""
ALLOWED = (0, 1, 75)
"""Exit codes of commands in a network that fails: done, not done, and try again later."""
COMMANDS = ("status", "status --json", "topics create", "wait orders {id} --timeout 5s", "land orders")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    what: str
    seconds: float
    starts: int
    """How often `lakehouse run` had to be started again, as systemd does."""
    commands: Sequence[str]
    failure: str = ""


@dataclass
class Distant(World):
    """A world in which only the product is behind the proxies."""

    proxies: Mapping[str, Proxy] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        given = super().environment() | {
            "LAKEHOUSE_PULSAR__SERVICE_URL": f"pulsar://{HOST}:{self.proxies['broker'].port}",
            "LAKEHOUSE_PULSAR__ADMIN_URL": self.proxies["admin"].url,
            "LAKEHOUSE_PULSAR__LISTENER_NAME": "outside",
            "LAKEHOUSE_RUN__RETRY_DELAY": "5",
        }
        if store := self.proxies.get("store"):
            given["LAKEHOUSE_S3"] = self.settings.s3.model_copy(update={"endpoint": store.url}).model_dump_json(
                exclude_none=True
            )
        return given

    def try_command(self, words: str) -> str:
        """Run a command while the network fails; returns what became of it."""
        began = time.monotonic()
        try:
            done = subprocess.run(
                [LAKEHOUSE, *words.split()],
                env=self.environment(),
                cwd=self.settings.home,
                capture_output=True,
                text=True,
                timeout=BOUND,
            )
        except subprocess.TimeoutExpired:
            raise NotSurvivedError(f"`lakehouse {words}` has not ended within {BOUND:g} s") from None
        text = done.stdout + done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("lakehouse: ")]
        told = f"`lakehouse {words}` {time.monotonic() - began:.0f} s, {done.returncode}: {' '.join(lines)}"
        if done.returncode not in ALLOWED or "Traceback" in text or (done.returncode == 1 and len(lines) != 1):
            raise NotSurvivedError(f"{told}: {text[-2000:]}")
        if done.returncode == 1 and f"{HOST}:" not in lines[0]:
            raise NotSurvivedError(f"{told}: names no address")
        return told


@contextmanager
def distant_broker(settings: Settings, seed: object) -> Iterator[dict[str, Proxy]]:
    """A broker that its clients reach through two proxies, by the listener `outside`."""
    ports = {"broker": settings.pulsar.broker_port, "admin": settings.pulsar.web_port}
    with ExitStack() as stack:
        proxies = {name: stack.enter_context(proxied(port, f"{seed} {name}")) for name, port in ports.items()}
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(broker, "_configured", advertising(ports["broker"], proxies["broker"].port))
        broker.start(settings)
        stack.callback(broker.stop, settings)
        yield proxies


def with_ports(home: Path) -> Settings:
    return load_settings(home=home, pulsar={"broker_port": free_port(), "web_port": free_port()})


def advertising(inside: int, outside: int) -> Callable[[str, dict[str, int]], str]:
    """A broker's configuration: those who ask for the listener `outside` are told the proxy's address."""
    configured = broker._configured
    listeners = f"inside:pulsar://{HOST}:{inside},outside:pulsar://{HOST}:{outside}"
    return lambda *given: f"{configured(*given)}\nadvertisedListeners={listeners}\ninternalListenerName=inside\n"


@contextmanager
def distant_world(home: Path, draw: random.Random, *, has_store: bool) -> Iterator[Distant]:
    """A world whose product runs, with some messages in its tables."""
    settings, seed = with_ports(home), draw.random()
    with ExitStack() as stack:
        proxies = stack.enter_context(distant_broker(settings, seed))
        if has_store:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            server = Server(home / "store", settings.cache)
            server.folder.mkdir()
            server.start()
            stack.callback(server.kill)
            settings = in_store(settings, server.url, "network")
            proxies["store"] = stack.enter_context(proxied(server.port, f"{seed} store"))
        world = Distant(settings, draw, proxies=proxies)
        stack.callback(world.kill)
        world.restore_topics()
        world.send()
        world.run()
        world.await_agreement()
        yield world


def episode(world: Distant) -> Outcome:
    """Let the network fail for a while, with messages and commands; heal it, and wait for the tables."""
    draw, began, starts, commands = world.draw, time.monotonic(), world.starts, list[str]()
    struck = draw.sample([*world.proxies], draw.randint(1, len(world.proxies)))
    kinds, share = draw.sample([*Fault], draw.randint(1, 3)), draw.choice((0.3, 0.7, 1.0))
    what = f"{', '.join(struck)}: {', '.join(kind.value for kind in kinds)} ({share:.0%})"
    failure = ""
    try:
        for name in struck:
            world.proxies[name].strike(kinds, share=share)
        world.send(0.5)
        for words in draw.sample(COMMANDS, draw.randint(0, 2)):
            commands.append(world.try_command(words.format(id=message_id(world))))
        time.sleep(draw.uniform(2, 20))
        for name in struck:
            world.proxies[name].heal()
        world.send(0.3)
        world.await_agreement()
    except Exception as error:
        failure = str(error) or type(error).__name__
        for name in struck:
            world.proxies[name].heal()
    seconds = time.monotonic() - began
    return Outcome(what=what, seconds=seconds, starts=world.starts - starts, commands=commands, failure=failure)


def message_id(world: World) -> str:
    where = world.draw.choice(sorted(position for topic, position in world.topics if topic == "orders"))
    return f"{where.ledger_id}:{where.entry_id}:{where.partition}:{where.batch_index}"


def counted(world: Distant) -> str:
    """How many connections had each fault."""
    total = Counter[Fault]()
    for proxy in world.proxies.values():
        total.update(proxy.struck)
    return ", ".join(f"{total[fault]} {fault.value}" for fault in Fault)
