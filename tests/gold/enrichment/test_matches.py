"""Payments of orders: which are partners, how orders wait for them, and what changes when they come, change or go."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.enrichment import matches as matching
from pulsar_lakehouse.gold.enrichment.backfill import Scope, backfill
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.enrichment.lookups import look_up
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.forget import forget
from pulsar_lakehouse.jobs.overdue import overdue
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.pipeline.declared import Pipeline
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
ALL = replace(INVOICES, matches=(replace(PAYMENT, each="all"),))


def invoice(id: int, *, place: int, number: int | None = None, when: float = 0) -> Message:
    payload = {"id": id, "invoiceId": id if number is None else number, "at": millis(at(when))}
    return message("invoices", payload, key=None, when=when, place=place)


def nameless_invoice(id: int, *, place: int) -> Message:
    return message("invoices", {"id": id, "at": millis(at(0))}, key=None, place=place)


def paid(
    id: int, invoice: int | None, *, when: float = 1, place: int = 0, changed: float | None = None, cents: int = 5
) -> Message:
    payload = {"id": id, "invoiceId": invoice, "cents": cents, "paidAt": millis(at(when))}
    return message("payments", payload, key=str(id), when=when if changed is None else changed, place=place)


@dataclass
class World:
    """A project with one kind of facts, whose clock tests turn."""

    lake: Lake
    facts: Enrichment

    def run(self, *messages: Message, minute: float) -> dict[int, Any]:
        """Lands, merges and enriches messages at a minute: by invoice, its partners, or why it waits."""
        entity, name = self.facts.matches[0].entity, self.facts.waiting.name
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matching, "now", lambda: at(minute))
            land_literally(self.lake, messages, [entity.topic, self.facts.topic])
            catch_up(self.lake.settings, merging(self.lake, [entity]))
            catch_up(self.lake.settings, enriching(self.lake, [self.facts]))
        assert reconcile_facts(self.lake, self.facts).holds
        in_gold = {row["id"]: keys_of(row["paid"]) for row in self.gold}
        return in_gold | {row["id"]: row["reason"] for row in read(self.lake.settings, name)}

    def is_overdue(self, *, minute: float) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matching, "now", lambda: at(minute))
            return list(overdue(self.lake.settings, [self.facts])) == [self.facts.topic.name]

    @property
    def gold(self) -> list[dict[str, Any]]:
        return read(self.lake.settings, self.facts.gold_table)


def keys_of(partners: Any) -> Any:
    if isinstance(partners, list):
        return [row["id"] for row in partners]
    return partners and partners["id"]


def world(lake: Lake, home: Path, facts: Enrichment) -> World:
    return World(Lake(lake.spark, own_home(lake.settings, home)), facts)


def test_an_invoice_has_the_first_payment_of_those_that_came_and_waits_until_there_is_one(
    lake: Lake, tmp_path: Path
) -> None:
    """Payment 20 comes before its invoice, and 10 after it.

    40 is of invoice 4, and then of 5. 61 is before 60, and 62 after it. 70 is of another amount later. 80 names no
    invoice. Of invoice 8 the number is missing, and of 11 it is none that a payment can have. 3 and 30 come twice.
    """
    of = world(lake, tmp_path, INVOICES)
    named = [invoice(id, place=id) for id in (1, 3, 4, 5, 6, 7)]
    nameless = [nameless_invoice(8, place=8), invoice(11, number=2**40, place=11), paid(80, None, place=8)]
    payments = [paid(id, id // 10, when=9, place=id) for id in (20, 30, 40, 60, 70)]
    assert of.run(*named, *nameless, *payments, minute=60) == {
        **{1: "paid missing", 3: 30, 4: 40, 5: "paid missing", 6: 60, 7: 70},
        **{8: None, 11: None},
    }
    assert [of.is_overdue(minute=minute) for minute in (60, 61)] == [False, True]
    again = [invoice(3, place=101), paid(30, 3, when=9, place=102)]
    others = [paid(10, 1, place=103), invoice(2, place=104), paid(40, 5, when=9, changed=10, place=105)]
    nearer = [paid(61, 6, when=8, place=106), paid(62, 6, when=10, place=107)]
    dearer = [paid(70, 7, when=9, changed=10, place=108, cents=7), invoice(9, place=109)]
    expired = {4: "paid expired", 9: "paid expired"}
    assert of.run(*again, *others, *nearer, *dearer, minute=61) == {
        **{1: 10, 2: 20, 3: 30, 5: 40, 6: 61, 7: 70, 8: None, 11: None},
        **expired,
    }
    assert [row["paid"]["cents"] for row in of.gold if row["id"] == 7] == [7]
    late = paid(90, 9, place=201)
    assert of.run(late, minute=62) == {
        1: 10,
        2: 20,
        3: 30,
        4: "paid expired",
        5: 40,
        6: 61,
        7: 70,
        8: None,
        9: 90,
        11: None,
    }
    # There is nothing to ask for any more.
    asked = [(row["action"], row["topic"], row["position"]) for row in read(of.lake.settings, ACTIONS.name)]
    assert asked == [("expire", "invoices", None)]


def test_an_invoice_that_needs_no_payment_goes_to_gold_when_none_can_come_any_more(lake: Lake, tmp_path: Path) -> None:
    """Payments 20 and 21 are just out of the interval, and 22 and 23 just within. 40 is deleted."""
    of = world(lake, tmp_path, replace(ALL, matches=(replace(ALL.matches[0], required=False),), correction_days=1))
    named = [invoice(id, place=id) for id in (1, 2, 3, 4, 5)]
    payments = [paid(20, 2, when=-5.001, place=20), paid(21, 2, when=60.001, place=21), paid(40, 4, place=40)]
    of_third = [paid(id, 3, when=when, place=id) for id, when in ((30, 2), (9, 2), (4, 3))]
    assert of.run(*named, *payments, *of_third, minute=60) == {
        **{1: "paid missing", 2: "paid missing", 3: [9, 30, 4], 4: [40], 5: "paid missing"}
    }
    more = [tombstone("payments", "40", when=5, place=41), paid(50, 3, when=1, place=50)]
    assert of.run(*more, invoice(6, when=2000, place=6), minute=9000) == {
        **{1: None, 2: None, 3: [50, 9, 30, 4], 4: None, 5: None, 6: None}
    }
    late = [paid(10, 1, place=110), paid(22, 2, when=-5, place=122), paid(23, 2, when=60, place=123)]
    # What is published at minute 2400 is too late for invoice 5, which is of the day before.
    too_late = [paid(51, 5, changed=2400, place=151), paid(60, 6, when=2001, changed=2400, place=160)]
    assert of.run(*late, *too_late, minute=9000) == {
        **{1: [10], 2: [22, 23], 3: [50, 9, 30, 4], 4: None, 5: None, 6: [60]}
    }


KEPT = replace(PAYMENTS, deleted_at="timestampadd(DAY, 2, paidAt)", keep_deleted=0)
"""Payments that are purged after two days: long before these tests run."""


def test_a_payment_stays_in_gold_after_it_was_purged(lake: Lake, tmp_path: Path) -> None:
    """Also where the fact is decided again, as another payment comes, or a backfill finds it by its key."""
    of = world(lake, tmp_path, replace(ALL, matches=(replace(ALL.matches[0], entity=KEPT),)))
    of.run(invoice(1, place=1), invoice(2, place=2), paid(10, 1, place=1), paid(20, 2, place=2), minute=10)
    assert purge(of.lake, KEPT) == 2
    assert of.run(paid(11, 1, when=0, place=3), minute=10) == {1: [11, 10], 2: [20]}
    assert backfill(of.lake, of.facts, Scope(entity="payments", key="10")).unchanged == 1


@pytest.mark.long
def test_a_payment_that_is_erased_leaves_its_invoice_which_stays(lake: Lake, tmp_path: Path) -> None:
    """Invoice 1 is paid by another one, too."""
    of = world(lake, tmp_path, replace(ALL, matches=(*ALL.matches, replace(PAYMENT, required=False, name="first"))))
    payments = [paid(10, 1, place=1), paid(11, 1, when=2, place=2), paid(20, 2, place=3)]
    of.run(invoice(1, place=1), invoice(2, place=2), *payments, minute=10)
    pipeline = Pipeline(entities=(PAYMENTS,), enrichments=(of.facts,), sql_tables=())
    forget(of.lake, pipeline, PAYMENTS, "10", now=False)
    assert sorted((keys_of(row["paid"]), row["first"]["id"]) for row in of.gold) == [([11], 11), ([20], 20)]
    assert reconcile_facts(of.lake, of.facts).holds


@pytest.mark.parametrize("each", ["first", "all"])
def test_few_facts_find_what_many_find(
    lake: Lake, tmp_path: Path, each: Literal["first", "all"], monkeypatch: pytest.MonkeyPatch
) -> None:
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
