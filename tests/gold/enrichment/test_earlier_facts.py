"""Payments that look up the invoice that they pay, by two columns, and through it the customer: as the docs say."""

from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.gold.enrichment.backfill import Difference, Scope, backfill
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import at, message, millis
from tests.oracle import Message
from tests.test_docs import ROOT, blocks

_DECLARED: dict[str, Any] = {}
exec(list(blocks(ROOT / "docs" / "own-topics.md", "python"))[-1], _DECLARED)
INVOICES, CUSTOMERS, PAYMENTS = (_DECLARED[name] for name in ("INVOICES", "CUSTOMERS", "PAYMENTS"))


def run(lake: Lake, *messages: Message) -> None:
    land_literally(lake, messages, [each.topic for each in (INVOICES, CUSTOMERS, PAYMENTS)])
    catch_up(lake.settings, merging(lake, [INVOICES, CUSTOMERS]))
    catch_up(lake.settings, enriching(lake, [PAYMENTS]))


def awaited(project: Settings) -> list[tuple[object, ...]]:
    waiting = read(project, PAYMENTS.waiting.name)
    return [tuple(state[name] for name in ("entity", "key", "via")) for row in waiting for state in row["missing"]]


@pytest.mark.long
def test_a_payment_waits_for_its_invoice_and_then_for_the_customer(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    paid = {"id": 1, "shop": "Köln", "invoice": 7, "amount": 9.5, "paidAt": millis(at(10))}
    run(Lake(lake.spark, project), message("payments", paid, key=None, place=1))
    assert awaited(project) == [("invoices", '["Köln",7]', None)]
    sent = {"shop": "Köln", "number": 7, "customerId": 5}
    other = message("invoices", {**sent, "shop": "Ulm"}, key='["Ulm",7]', place=3)
    run(Lake(lake.spark, project), message("invoices", sent, key=None, place=2), other)
    assert awaited(project) == [("customers", "5", [{"entity": "invoices", "key": '["Köln",7]'}])]
    run(Lake(lake.spark, project), message("customers", {"id": 5, "name": "Ada"}, key="5", place=3))
    [payment] = read(project, PAYMENTS.gold_table)
    assert (payment["invoice"]["shop"], payment["customer"]["name"]) == ("Köln", "Ada")
    same = Difference(unchanged=1, changed=0, added=0, removed=0, waiting=0)
    assert (
        backfill(Lake(lake.spark, project), PAYMENTS, Scope(entity="invoices", key='["Köln",7]'), dry_run=True) == same
    )
    assert backfill(Lake(lake.spark, project), PAYMENTS, Scope(entity="customers", key="5"), dry_run=True) == same
    run(Lake(lake.spark, project), message("invoices", None, key='["Köln",7]', when=5, place=4))
    assert (read(project, PAYMENTS.gold_table), awaited(project)) == ([], [("invoices", '["Köln",7]', None)])
    assert reconcile_facts(Lake(lake.spark, project), PAYMENTS).holds
