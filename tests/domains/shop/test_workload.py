import json
import time
from collections import Counter
from itertools import islice

from pulsar_lakehouse.domains.shop.workload import ITEMS, UNKNOWN_ITEM, Workload
from pulsar_lakehouse.pulsar.produce import Message

TIDY = Workload(users=1_000, orders=20_000, duplicates=0, malformed=0)
TOPICS = ("items", "users", "orders")


def everything(workload: Workload) -> list[Message]:
    return [message for phase in (workload.first, workload.late) for topic in TOPICS for message in phase(topic)]


def bodies(messages: list[Message]) -> list[dict[str, object]]:
    return [json.loads(message.payload) for message in messages if message.payload]


def test_the_same_seed_gives_the_same_messages() -> None:
    assert everything(Workload(orders=15_000)) == everything(Workload(orders=15_000))
    assert everything(Workload(orders=15_000)) != everything(Workload(orders=15_000, seed=8))


def test_every_order_comes_once_when_nothing_is_duplicated() -> None:
    orders = list(TIDY.first("orders"))
    assert [message.key for message in orders] == [str(id) for id in range(20_000)]
    assert [body["lineItemId"] for body in bodies(orders)] == list(range(20_000))


def test_keys_are_ids_and_event_times_are_those_of_the_order() -> None:
    for message, body in zip(TIDY.first("orders"), bodies(list(TIDY.first("orders"))), strict=True):
        assert (message.key, message.event_time) == (str(body["lineItemId"]), body["createdAt"])


def test_orders_are_out_of_order() -> None:
    times = [message.event_time for message in TIDY.first("orders")]
    assert times != sorted(times)
    assert max(times) - min(times) > 2.9 * 86_400_000


def test_some_users_and_items_of_orders_never_come() -> None:
    orders = bodies(list(TIDY.first("orders")))
    assert 150 < sum(int(str(order["userId"])) > 1_000 for order in orders) < 250
    assert 70 < sum(int(str(order["itemId"])) >= UNKNOWN_ITEM for order in orders) < 130


def test_each_user_is_created_once_some_after_their_orders() -> None:
    early = [message.key for message in TIDY.first("users")]
    late = [body for body in bodies(list(TIDY.late("users"))) if str(body["emailAddress"]).startswith("user")]
    created_late = {str(body["id"]) for body in late if body["deletedAt"] == body["mergedAt"] == -1}
    assert (len(early), len(created_late)) == (980, 20)
    assert set(early) | created_late == {str(id) for id in range(1, 1_001)}


def test_users_change_by_update_delete_and_merge() -> None:
    changes = list(TIDY.late("users"))
    changed = bodies(changes)
    assert sum(str(body["emailAddress"]).startswith("moved") for body in changed) == 2 * 20
    assert sum(body["deletedAt"] != -1 for body in changed) + sum(message.payload is None for message in changes) == 10
    merged = [body for body in changed if body["mergedAt"] != -1]
    assert 9 <= len(merged) <= 10
    assert all(0 < int(str(body["parentUserId"])) < int(str(body["id"])) for body in merged)


def test_items_are_real_and_change_their_price() -> None:
    items = {str(body["id"]): body["price"] for body in bodies(list(TIDY.first("items")))}
    assert len(items) == len(ITEMS) == 2_198
    assert items["3641"] == 42.0
    assert sum(body["price"] != items[str(body["id"])] for body in bodies(list(TIDY.late("items")))) > 150


def test_duplicates_are_the_same_message_again() -> None:
    copies = Counter(Workload(orders=20_000, malformed=0).first("orders"))
    assert set(copies.values()) == {1, 2}
    assert 150 < sum(count == 2 for count in copies.values()) < 250


def test_broken_messages_are_broken_copies_of_good_ones() -> None:
    orders = list(Workload(orders=100_000, duplicates=0).first("orders"))
    broken = [message for message in orders if message.broken]
    assert len(orders) == 100_000 + len(broken)
    assert 150 < len(broken) < 250
    assert {b" ", b"null"} < {message.payload for message in broken}
    assert not {message.payload for message in broken} & {message.payload for message in orders if not message.broken}


def test_orders_from_now_are_paced_and_never_repeat_an_id() -> None:
    before = time.time() * 1000
    live = list(islice(Workload(duplicates=0, malformed=0).orders_from_now(1000), 20_000))
    ids = [int(message.key) for message in live]
    assert ids == list(range(ids[0], ids[0] + 20_000))
    assert ids[0] >= int(before) * 1000
    assert max(message.event_time for message in live) <= time.time() * 1000 + 20_000
