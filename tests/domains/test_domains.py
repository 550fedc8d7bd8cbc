"""What holds of each domain, so that the demo and `lakehouse produce` can use it."""

import json
from itertools import islice

import pytest

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains import DOMAINS, workload_of
from pulsar_lakehouse.domains.draws import Drawn
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.pulsar.produce import Message
from pulsar_lakehouse.pulsar.topic_names import by_name

each_domain = pytest.mark.parametrize("domain", DOMAINS)
each_drawn = pytest.mark.parametrize("domain", [each for each in DOMAINS if issubclass(workload_of(each), Drawn)])
"""The others are recorded."""


def topics_of(domain: str) -> dict[str, Topic]:
    return by_name(load(DOMAINS[domain] / "declarations").pipeline.topics)


def messages(domain: str, size: int = 1_000) -> dict[str, list[Message]]:
    """The messages of both phases, by topic."""
    workload = workload_of(domain).of(size)
    return {name: [*workload.first(name), *workload.late(name)] for name in topics_of(domain)}


def test_the_domains_are_the_folders_with_a_workload() -> None:
    assert list(DOMAINS) == ["favorites", "inventory", "ledger", "payments", "shop"]


@each_domain
def test_a_domain_has_queries_with_titles(domain: str) -> None:
    files = sorted((DOMAINS[domain] / "queries").glob("*.sql"))
    assert len(files) >= 3
    assert all(file.read_text().startswith("-- ") for file in files)


@each_domain
def test_the_same_values_give_the_same_messages(domain: str) -> None:
    assert messages(domain) == messages(domain)


@each_drawn
def test_the_size_says_how_many_messages_there_are(domain: str) -> None:
    assert messages(domain) != messages(domain, size=1_100)


@each_domain
def test_each_topic_has_messages_and_no_other_has(domain: str) -> None:
    assert all(messages(domain).values())
    workload = workload_of(domain).of(1_000)
    assert [*workload.first("elsewhere"), *workload.late("elsewhere")] == []


@each_drawn
def test_messages_that_are_not_broken_have_the_declared_fields(domain: str) -> None:
    sent, landed = messages(domain), load(DOMAINS[domain] / "declarations").pipeline.landed
    for name, topic in topics_of(domain).items():
        kinds = [set(each.fields.names) for each in landed if each.bronze_table == topic.bronze_table]
        for message in sent[name]:
            if message.payload is not None and not message.broken:
                assert set(json.loads(message.payload)) in kinds


@each_drawn
def test_no_broken_message_is_also_a_good_one(domain: str) -> None:
    for sent in messages(domain, size=20_000).values():
        broken = {message.payload for message in sent if message.broken}
        assert broken
        assert not broken & {message.payload for message in sent if not message.broken}


@each_domain
def test_messages_of_now_on_are_for_a_declared_topic(domain: str) -> None:
    topic, endless = workload_of(domain).of(1_000).endless(100)
    assert topic in topics_of(domain)
    made = list(islice(endless, 1_000))
    assert len({(message.event_time, message.payload) for message in made}) > 900
