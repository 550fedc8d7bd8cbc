"""Many hostile messages through the whole pipeline: each ends in its table, or in quarantine for a true reason."""

import random
import re
from collections import Counter, defaultdict
from pathlib import Path

from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Pulsar, Settings
from tests.chaos.waves import Sent
from tests.chaos.world import NotSurvivedError, World
from tests.hostile import hostile_messages
from tests.lake import messages, read
from tests.oracle import Message, Position, is_malformed
from tests.reasons import is_true_of

PLACES = ("gold.enriched_orders", "quarantine.waiting_orders", "quarantine.duplicate_orders")
SHOWN = 300
"""Bytes of a payload that an error shows."""
STEP = re.compile(r"✓ (\w+) \w+ +[\d,]+ rows in +([\d.]+) s")


def send_hostile_messages(count: int, seed: int, home: Path, endpoint: Endpoint) -> float:
    """Send `count` messages and run the pipeline once; returns the seconds that its steps took.

    Raises NotSurvivedError if a message is not where it should be, or is in quarantine for a reason that is not true.
    """
    pulsar = Pulsar(service_url=endpoint.service_url, admin_url=endpoint.admin_url, namespace=f"public/{home.name}")
    home.mkdir(parents=True)
    world = World(Settings(home=home, pulsar=pulsar), random.Random(seed), spark={})
    world.restore_topics()
    world.send_all(
        Sent(each.topic, each.key, each.payload, each.event_time, each.properties)
        for each in hostile_messages(seed, count)
    )
    if len(world.topics) != count:
        raise NotSurvivedError(f"the topics hold {len(world.topics)} of {count} messages")
    ended = world.command("run", timeout=3600)
    check(list(world.topics.values()), world.settings)
    return seconds_of(ended.text)


def check(sent: list[Message], settings: Settings) -> None:
    if Counter(map(where, sent)) != Counter(map(where, messages(settings))):
        raise NotSurvivedError("bronze differs from what the topics hold")
    by_place = {(message.topic, message.position): message for message in sent}
    malformed = read(settings, "quarantine.malformed")
    rejected = {(row["topic"], Position(**row["position"])): row["reason"] for row in malformed}
    if len(rejected) != len(malformed) or rejected.keys() != {
        each for each in by_place if is_malformed(by_place[each])
    }:
        raise NotSurvivedError("quarantine.malformed does not hold exactly the messages that break their contract")
    if untrue := [
        (reason, by_place[each]) for each, reason in rejected.items() if not is_true_of(reason, by_place[each])
    ]:
        reason, message = untrue[0]
        of = f"{message.topic} {message.position}, {(message.payload or b'')[:SHOWN]!r}"
        raise NotSurvivedError(f"{len(untrue)} reasons are not true, such as {reason!r} of {of}")
    sound = Counter(position for topic, position in by_place.keys() - rejected.keys() if topic == "orders")
    placed = Counter(Position(**row["position"]) for name in PLACES for row in read(settings, name))
    if sound != placed:
        raise NotSurvivedError(
            f"of the sound orders, {(sound - placed).total()} are missing, and {(placed - sound).total()} are too many"
        )


def where(message: Message) -> tuple[str, Position, bytes | None]:
    return message.topic, message.position, message.payload


def seconds_of(said: str) -> float:
    """The sum over the kinds of steps. Steps of one kind run in parallel, so only the longest of them counts."""
    steps: defaultdict[str, float] = defaultdict(float)
    for step, seconds in STEP.findall(said):
        steps[step] = max(steps[step], float(seconds))
    return sum(steps.values())
