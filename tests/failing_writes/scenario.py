"""The steps of a pipeline without a broker, each with what its home holds before it."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pulsar_lakehouse import Files
from pulsar_lakehouse.bronze.sources import SourceLanding
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.backfill import Scope
from pulsar_lakehouse.jobs import snapshots
from pulsar_lakehouse.jobs.backfill_requests import request
from pulsar_lakehouse.jobs.forget import forget
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.jobs.quarantine import actions_of, ask, choose
from pulsar_lakehouse.jobs.rebuild import rebuild, wanted
from pulsar_lakehouse.jobs.retry_malformed import retry_changes, retry_facts
from pulsar_lakehouse.jobs.sql_tables import refresh_each
from pulsar_lakehouse.jobs.steps import enriching, landing, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.pulsar.endpoint import call_admin
from pulsar_lakehouse.pulsar.produce import Message as Sent
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.tables.lake import Lake
from tests.chaos.world import KEPT
from tests.jobs.test_retry_malformed import FIXED_ORDERS, FIXED_USERS, without
from tests.lake import land_literally
from tests.messages import START, item, message, millis, order, tombstone, user
from tests.messages import at as moment
from tests.oracle import Message
from tests.shop import ENRICHMENTS, ENTITIES, SHOP, SQL_TABLES, TOPICS

FIRST = [
    *(user(1), user(3, place=1), without(user(4, place=2), "createdAt"), item(1), item(2, category="tea", place=1)),
    *(order(1, place=1), order(2, place=2, user=2), order(3, place=3, user=3, item=2), order(4, place=4, user=9)),
    *(order(5, place=5, price=-1), order(6, place=6, user=4), message("orders", b"{", key="7", place=7)),
    *(order(8, place=8, user=8), without(order(9, place=9), "price")),
]
SECOND = [
    *(user(2, place=3), user(1, "Zoë", when=5, place=4), tombstone("users", "3", when=5, place=5)),
    *(user(8, when=2, place=6, mergedAt=millis(moment(1)), parentUserId=1), item(1, 2.5, when=5, place=2)),
    *(order(1, place=10, when=11), order(10, place=11), order(11, place=12, user=1, when=24 * 60)),
]
"""The state that orders 2 and 8 wait for, a user who is deleted before order 3, a new price, and more orders."""


def merge(lake: Lake) -> None:
    catch_up(lake.settings, merging(lake, ENTITIES))


def enrich(lake: Lake) -> None:
    catch_up(lake.settings, enriching(lake, ENRICHMENTS))


def refresh(lake: Lake) -> None:
    list(refresh_each(lake, SQL_TABLES))


def follow(lake: Lake) -> None:
    for step in (merge, enrich, refresh):
        step(lake)


def land_file(lake: Lake) -> None:
    source = Files("regions", "id BIGINT NOT NULL, name STRING", path=str(lake.settings.home / "regions.csv"))
    SourceLanding(lake, source, ("id",), always=True)(Permit())


def land_topics(lake: Lake) -> None:
    catch_up(lake.settings, landing(lake, TOPICS))


def land_by_stream(lake: Lake) -> None:
    """In a batch for each message, as `land_topics` leaves none of them to Spark."""
    run = lake.settings.run.model_copy(update={"max_bytes_per_batch": 1})
    land_topics(replace(lake, settings=lake.settings.model_copy(update={"run": run})))


def send(lake: Lake, messages: Sequence[Message]) -> None:
    broker = endpoint(lake.settings)
    create_topics(TOPICS, broker, lake.settings)
    for topic in TOPICS:
        path = f"persistent/{lake.settings.pulsar.namespace}/{topic.name}/retention"
        call_admin("POST", path, broker, lake.settings, body=KEPT)
        of_topic = [each for each in messages if each.topic == topic.name]
        sent = (Sent(str(each.key), each.payload, millis(each.event_time or START)) for each in of_topic)
        produce([(topic, sent)], broker, lake.settings)


def with_topics(lake: Lake) -> None:
    """A home in which the first messages have landed, and the others are in the topics."""
    send(lake, FIRST)
    land_topics(lake)
    send(lake, SECOND)


def with_messages(lake: Lake) -> None:
    """A home in which the first messages have landed, and nothing else."""
    shutil.rmtree(lake.settings.home)
    land_literally(lake, FIRST)


def retry(lake: Lake) -> None:
    retry_changes(lake, FIXED_USERS, dry_run=False)
    retry_facts(lake, FIXED_ORDERS, dry_run=False)


def discard(lake: Lake) -> None:
    actions = actions_of(lake.settings, "discard", choose(lake.settings, key="9"), who="ada", note="")
    ask(lake.settings, actions)
    enrich(lake)


def backfill(lake: Lake) -> None:
    request(lake.settings, ORDERS, Scope(since=date(2026, 1, 1), until=date(2026, 1, 2)), note="")
    enrich(lake)


def take_snapshot(lake: Lake) -> None:
    if "before" not in [each.name for each in snapshots.snapshots(lake.settings)]:
        snapshots.create(lake, SHOP, "before")


def restore(lake: Lake) -> None:
    for _ in snapshots.restore(lake, SHOP, snapshots.named(lake.settings, "before")):
        pass
    follow(lake)


def rebuild_all(lake: Lake) -> None:
    for _ in rebuild(lake, wanted(SHOP, ["silver.users", "silver.items"])):
        pass
    refresh(lake)


def forget_user(lake: Lake) -> None:
    forget(lake, SHOP, ENTITIES[0], "1", now=True)


def maintain_all(lake: Lake) -> None:
    for _ in maintain(lake.settings):
        pass


def more(*steps: Callable[[Lake], None], land: Sequence[Message] = ()) -> Callable[[Lake], None]:
    def do(lake: Lake) -> None:
        land_literally(lake, land)
        for step in steps:
            step(lake)

    return do


@dataclass(frozen=True)
class Step:
    """What is done, and the command that does it, or the main part of it."""

    before: Callable[[Lake], None]
    """Makes what the home holds before, from what the step before it in `STEPS` found."""
    do: Callable[[Lake], None]
    command: tuple[str, ...] = ()
    holds_leases: bool = True
    needs_broker: bool = False


def nothing(lake: Lake) -> None:
    pass


def spoil(lake: Lake) -> None:
    """Give gold rows that a backfill has to change, to remove and to add."""
    gold = lake.table(ORDERS.gold_table).delta
    gold.delete("line_item_id = 10")
    gold.update("line_item_id = 1", {"price": "9.0"})


def with_file(lake: Lake) -> None:
    (lake.settings.home / "regions.csv").write_text("id,name\n1,North\n2,South\n")


STEPS = {
    "land": Step(with_topics, land_topics, ("land",), needs_broker=True),
    "land by a stream": Step(nothing, land_by_stream, needs_broker=True),
    "merge": Step(with_messages, merge, ("merge",)),
    "enrich": Step(merge, enrich, ("enrich",)),
    "merge more": Step(more(enrich, land=SECOND), merge, ("merge",)),
    "release and correct": Step(merge, enrich, ("enrich",)),
    "refresh": Step(enrich, refresh, ("refresh",)),
    "refresh more": Step(
        more(refresh, merge, enrich, land=[order(12, place=13), order(13, place=14, when=99)]), refresh, ("refresh",)
    ),
    "land a file": Step(with_file, land_file),
    "retry": Step(refresh, retry),
    "discard": Step(nothing, discard),
    "backfill": Step(spoil, backfill, ("backfill", "--from", "2026-01-01", "--to", "2026-01-02"), holds_leases=False),
    "snapshot": Step(backfill, take_snapshot, ("snapshot", "create", "before")),
    "restore": Step(
        more(take_snapshot, follow, land=[user(9, place=9), order(14, place=15, user=9)]),
        restore,
        ("snapshot", "restore", "before"),
    ),
    "maintain": Step(more(follow, land=[order(15, place=16)]), maintain_all, ("maintain",), holds_leases=False),
    "rebuild": Step(nothing, rebuild_all, ("rebuild", "silver.users", "silver.items", "--approve")),
    "forget": Step(nothing, forget_user, ("forget", "users:1", "--approve", "--now")),
}
