"""Payments of orders: which are partners, how orders wait for them, and what changes when they come, change or go."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.enrichment import matches as matching
from pulsar_lakehouse.gold.enrichment.backfill import Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.enrichment.lookups import look_up
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.purge import purge
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import at, message, millis, tombstone
from tests.oracle import Message

PAYMENTS = Entity(
    topic=Topic("payments", "id BIGINT NOT NULL, invoiceId INT, cents INT, paidAt TIMESTAMP_MILLIS"),
    key="id",
    columns="id, invoiceId AS invoice_id, cents, paidAt AS paid_at",
)
PAYMENT = Match(
    entity=PAYMENTS, on="invoice_id", time="paid_at", within=("-5 minutes", "1 hour"), lateness="0 seconds", name="paid"
)
INVOICES = Enrichment(
    topic=Topic("invoices", "id BIGINT NOT NULL, invoiceId BIGINT, at TIMESTAMP_MILLIS NOT NULL"),
    columns="id, invoiceId AS invoice_id, at",
    keys=("id",),
    event_time="at",
    day="day",
    lookups=(),
    matches=(PAYMENT,),
)
LEFT = replace(INVOICES, matches=(replace(PAYMENT, required=False),))
ALL = replace(INVOICES, matches=(replace(PAYMENT, each="all"),))


def invoice(id: int, *, place: int, number: int | None = None, when: float = 0) -> Message:
    payload = {"id": id, "invoiceId": id if number is None else number, "at": millis(at(when))}
    return message("invoices", payload, key=None, when=when, place=place)


def paid(
    id: int, invoice: int | None, *, when: float = 1, place: int = 0, changed: float | None = None, cents: int = 5
) -> Message:
    payload = {"id": id, "invoiceId": invoice, "cents": cents, "paidAt": millis(at(when))}
    return message("payments", payload, key=str(id), when=when if changed is None else changed, place=place)


Rounds = Callable[..., dict[str, Any]]


@pytest.fixture
def rounds(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    """Lands, merges and enriches messages at some minute; returns the partners by invoice, and why others wait."""
    own = own_home(lake.settings, tmp_path)

    def run(facts: Enrichment, *messages: Message, minute: float = 10, entity: Entity | None = None) -> dict[str, Any]:
        monkeypatch.setattr(matching, "now", lambda: at(minute))
        lands(Lake(lake.spark, own), facts, *messages)
        return placed(own, facts)

    return run


def lands(lake: Lake, facts: Enrichment, *messages: Message) -> None:
    entity = facts.matches[0].entity
    land_literally(lake, messages, [entity.topic, facts.topic])
    catch_up(lake.settings, merging(lake, [entity]))
    catch_up(lake.settings, enriching(lake, [facts]))
    assert reconcile_facts(lake, facts).holds


def placed(own: Settings, facts: Enrichment) -> dict[str, Any]:
    gold, waiting = (read(own, name) for name in (facts.gold_table, facts.waiting.name))
    return {row["id"]: keys_of(row["paid"]) for row in gold} | {row["id"]: row["reason"] for row in waiting}


def keys_of(partners: Any) -> Any:
    if isinstance(partners, list):
        return [row["id"] for row in partners]
    return partners and partners["id"]


def test_either_side_can_come_first(rounds: Rounds) -> None:
    assert rounds(INVOICES, invoice(1, place=1), paid(20, 2, place=1)) == {1: "paid missing"}
    assert rounds(INVOICES, invoice(2, place=2), paid(10, 1, place=2)) == {1: 10, 2: 20}


def test_a_partner_that_comes_twice_is_one(rounds: Rounds) -> None:
    assert rounds(ALL, invoice(1, place=1), paid(10, 1, place=1), paid(10, 1, place=2)) == {1: [10]}
    assert rounds(ALL, paid(10, 1, place=3), invoice(1, place=2)) == {1: [10]}


def test_both_ends_of_the_interval_count(rounds: Rounds) -> None:
    early, late = (paid(place, 1, when=when, place=place) for place, when in ((1, -5.001), (2, 60.001)))
    first, last = (paid(place, 1, when=when, place=place) for place, when in ((3, -5), (4, 60)))
    assert rounds(ALL, invoice(1, place=1), early, late) == {1: "paid missing"}
    assert rounds(ALL, last, first) == {1: [3, 4]}


def test_partners_are_in_the_order_of_their_times_and_then_of_their_keys(rounds: Rounds) -> None:
    payments = [paid(id, 1, when=when, place=id) for id, when in ((30, 2), (9, 2), (4, 3))]
    assert rounds(ALL, invoice(1, place=1), *payments) == {1: [9, 30, 4]}
    assert rounds(ALL, paid(50, 1, when=1, place=60)) == {1: [50, 9, 30, 4]}


def test_the_first_partner_is_the_earliest_one_whenever_it_comes(rounds: Rounds) -> None:
    assert rounds(INVOICES, invoice(1, place=1), paid(10, 1, when=9, place=1)) == {1: 10}
    assert rounds(INVOICES, paid(11, 1, when=8, place=2), paid(12, 1, when=10, place=3)) == {1: 11}


def test_a_partner_that_changes_corrects_the_facts_that_it_had_and_those_that_it_has(
    rounds: Rounds, lake: Lake, tmp_path: Path
) -> None:
    """Payment 10 is of another amount, and then of invoice 2."""
    rounds(INVOICES, invoice(1, place=1), invoice(2, place=2), paid(10, 1, place=1))
    assert rounds(INVOICES, paid(10, 1, place=2, changed=2, cents=7)) == {1: 10, 2: "paid missing"}
    [row] = read(own_home(lake.settings, tmp_path), INVOICES.gold_table)
    assert row["paid"]["cents"] == 7
    assert rounds(INVOICES, paid(10, 2, place=3, changed=3)) == {1: "paid missing", 2: 10}
    assert rounds(INVOICES, paid(10, 2, when=90, place=4, changed=4)) == {1: "paid missing", 2: "paid missing"}


def test_a_partner_that_is_deleted_is_none(rounds: Rounds) -> None:
    assert rounds(LEFT, invoice(1, place=1), paid(10, 1, place=1), minute=10) == {1: 10}
    assert rounds(LEFT, tombstone("payments", "10", when=5, place=2), minute=10) == {1: "paid missing"}
    assert rounds(LEFT, minute=61) == {1: None}


def test_a_fact_without_partner_is_told_to_have_none_when_its_interval_is_over(rounds: Rounds) -> None:
    assert rounds(INVOICES, invoice(1, place=1), minute=60) == {1: "paid missing"}
    assert rounds(INVOICES, minute=61) == {1: "paid expired"}
    assert rounds(INVOICES, paid(10, 1, place=1), minute=62) == {1: 10}


def test_a_fact_that_needs_no_partner_goes_to_gold_when_its_interval_is_over(rounds: Rounds) -> None:
    assert rounds(LEFT, invoice(1, place=1), minute=60) == {1: "paid missing"}
    assert rounds(LEFT, minute=61) == {1: None}
    assert rounds(LEFT, invoice(2, place=2), minute=61) == {1: None, 2: None}
    assert rounds(LEFT, paid(10, 1, place=1), minute=62) == {1: 10, 2: None}


def test_time_that_passes_is_asked_for_once(rounds: Rounds, lake: Lake, tmp_path: Path) -> None:
    rounds(INVOICES, invoice(1, place=1), minute=60)
    rounds(INVOICES, minute=61)
    rounds(INVOICES, minute=62)
    asked = read(own_home(lake.settings, tmp_path), ACTIONS.name)
    assert [(row["action"], row["topic"], row["position"]) for row in asked] == [("expire", "invoices", None)]


def test_a_fact_that_names_no_partner_waits_for_none(rounds: Rounds) -> None:
    """Number 2**40 is none of an invoice that payments have."""
    nameless = invoice(1, place=1)._replace(payload=b'{"id": 1, "at": %d}' % millis(at(0)))
    assert rounds(INVOICES, nameless, invoice(2, number=2**40, place=2), paid(10, None, place=1)) == {1: None, 2: None}


def test_a_late_partner_corrects_only_facts_of_some_days(rounds: Rounds) -> None:
    facts = replace(LEFT, correction_days=1)
    assert rounds(facts, invoice(1, place=1), invoice(2, place=2, when=2000), minute=9000) == {1: None, 2: None}
    late = [paid(id, id, when=when, changed=2400, place=id) for id, when in ((1, 1), (2, 2001))]
    assert rounds(facts, *late, minute=9000) == {1: None, 2: 2}


KEPT = replace(PAYMENTS, deleted_at="timestampadd(DAY, 2, paidAt)", keep_deleted=0)
"""Payments that are purged after two days: long before these tests run."""


def test_a_partner_stays_in_gold_after_its_entity_has_purged_it(rounds: Rounds, lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    facts = replace(ALL, matches=(replace(ALL.matches[0], entity=KEPT),))
    assert rounds(facts, invoice(1, place=1), paid(10, 1, place=1)) == {1: [10]}
    assert purge(own, KEPT) == 1
    assert rounds(facts, paid(11, 1, when=0, place=2)) == {1: [11, 10]}
    assert backfill(own, facts, Scope()).unchanged == 1


def test_a_backfill_of_a_partner_finds_its_facts(rounds: Rounds, lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    for facts in (ALL, INVOICES):
        rounds(facts, invoice(1, place=1), invoice(2, place=2), paid(10, 1, place=1), paid(20, 2, place=2))
        assert backfill(own, facts, Scope(entity="payments", key="10")).unchanged == 1


@pytest.mark.parametrize("each", ["first", "all"])
def test_few_facts_find_what_many_find(lake: Lake, tmp_path: Path, each: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "now", lambda: at(0))
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    facts = replace(INVOICES, matches=(replace(PAYMENT, each=each),))
    own.create(PAYMENTS.table)
    rows = [
        (1, 1, 5, at(3)),
        (2, 1, 5, at(2)),
        (3, 1, 5, at(90)),
        (4, 2, 5, at(70)),
        (5, None, 5, at(1)),
        (6, 4, 5, None),
    ]
    payments = lake.spark.createDataFrame(rows, "id BIGINT, invoice_id INT, cents INT, paid_at TIMESTAMP")
    payments.write.format("delta").mode("append").save(own.settings.table_path(PAYMENTS.table.name))
    numbers = [(1, 1, at(0)), (2, 2, at(20)), (3, 3, at(0)), (4, None, at(0))]
    source = lake.spark.createDataFrame(numbers, "position INT, invoice_id BIGINT, at TIMESTAMP")

    def found(number: int) -> list[Any]:
        looked_up = look_up(source, own, facts, source=source, number=number).orderBy("position").collect()
        return [(keys(row.paid), row.reason) for row in looked_up]

    def keys(partners: Any) -> Any:
        return [each.id for each in partners] if isinstance(partners, list) else partners and partners.id

    one, two = ([2, 1], [4]) if each == "all" else (2, 4)
    assert found(4) == found(FEW + 1) == [(one, None), (two, None), (None, "paid missing"), (None, None)]


def test_a_change_concerns_the_facts_near_the_row_before_and_after_it(lake: Lake) -> None:
    """Payment 1 moves from minute 10 to 20. A row that was purged concerns no fact, nor does one without invoice."""
    feed = lake.spark.createDataFrame(
        [
            (1, 7, at(10), (at(1),), "update_preimage"),
            (1, 7, at(20), (at(2),), "update_postimage"),
            (2, 8, at(10), (at(3),), "delete"),
            (3, None, at(10), (at(3),), "insert"),
            (4, 9, None, (at(3),), "insert"),
        ],
        "id INT, invoice_id INT, paid_at TIMESTAMP, sequence STRUCT<publish_time: TIMESTAMP>, _change_type STRING",
    ).withColumn("_commit_version", F.lit(3))
    moves = matching.moves_of(feed, match=PAYMENT).collect()
    assert [(row.changed_entity, row.changed_key, row.valid_from, row.is_before) for row in moves] == [
        ("match paid", "7", naive(at(-50)), True),
        ("match paid", "7", naive(at(-40)), False),
    ]
    assert [row.valid_until.replace(microsecond=0) for row in moves] == [naive(at(15)), naive(at(25))]


def naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)
