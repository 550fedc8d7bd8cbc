import json
from collections import Counter
from itertools import islice

from pulsar_lakehouse.domains.inventory.workload import KEYS, Workload
from pulsar_lakehouse.pulsar.produce import Message


def everything(topic: str) -> list[Message]:
    return [*Workload().first(topic), *Workload().late(topic)]


def envelopes(topic: str) -> list[dict[str, object]]:
    return [json.loads(message.payload)["payload"] for message in everything(topic) if message.payload]


def test_the_recording_has_all_kinds_of_changes() -> None:
    found = Counter(each["op"] for topic in KEYS for each in envelopes(topic))
    assert {*found} == {"r", "c", "u", "d", "t"}
    assert {message.payload for topic in KEYS for message in everything(topic)} > {None}


def test_lines_are_only_inserted() -> None:
    assert {each["op"] for each in envelopes("order_lines")} == {"c"}


def test_both_phases_keep_the_order_of_the_log() -> None:
    for topic in KEYS:
        positions = [each["source"]["lsn"] for each in envelopes(topic) if each["op"] != "r"]  # type: ignore[index]
        assert positions == sorted(positions)


def test_prices_that_change_from_now_on_are_later_in_the_log() -> None:
    last = max(each["source"]["lsn"] for each in envelopes("products"))  # type: ignore[index]
    _, changes = Workload().endless(100)
    made = [json.loads(message.payload)["payload"] for message in islice(changes, 20) if message.payload]
    assert [each["source"]["lsn"] for each in made] == list(range(last + 1, last + 21))
