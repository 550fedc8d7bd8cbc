"""`lakehouse wait`: where the messages of a real broker are."""

import re

import pytest

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.whereabouts import MessageId, message_id
from tests.cli.outcome import Command
from tests.cli.sold import Sold, send


@pytest.mark.parametrize(
    ("kind", "code", "told"),
    [
        ("enriched", 0, "in gold.enriched_sales"),
        ("duplicate", 1, "in quarantine.duplicate_sales: a duplicate of PLACE"),
        ("waiting", 75, "in quarantine.waiting_sales: waits for stores 4: store missing"),
        ("malformed", 1, "in quarantine.malformed: fails price_is_an_amount"),
        ("unreadable", 1, "in quarantine.malformed: storeId is missing"),
    ],
)
def test_a_sale(lakehouse: Command, sold: Sold, kind: str, code: int, told: str) -> None:
    done = lakehouse("wait", "sales", str(sold.ids[kind]), "--timeout", "0s", **sold.variables)
    line = done.out if code == 0 else done.line
    assert (done.code, re.sub(r"\d+/\d+/\d+/-?\d+", "PLACE", line).partition("): ")[2].strip()[: len(told)]) == (
        code,
        told,
    )


def test_every_sale_is_in_bronze(lakehouse: Command, sold: Sold) -> None:
    for kind in ("enriched", "duplicate", "waiting", "malformed", "unreadable"):
        assert lakehouse("wait", "sales", str(sold.ids[kind]), "--in", "bronze", **sold.variables).code == 0


def test_a_store_is_in_silver(lakehouse: Command, sold: Sold) -> None:
    done = lakehouse("wait", "stores", str(sold.ids["1"]), **sold.variables)
    assert (done.code, "in silver.stores" in done.out) == (0, True)


def test_a_sale_that_nobody_has_landed(lakehouse: Command, sold: Sold) -> None:
    later = send(sold.settings, sold.endpoint, "sales", {"id": 9})
    done = lakehouse("wait", "sales", str(later), "--timeout", "1s", **sold.variables)
    assert (done.code, done.line) == (75, f"lakehouse: sales {later}: has not landed yet")


def test_a_layer_that_no_message_of_the_topic_reaches(lakehouse: Command, sold: Sold) -> None:
    done = lakehouse("wait", "stores", "1:2:3", "--in", "gold", **sold.variables)
    assert (done.code, done.line) == (78, "lakehouse: gold: messages of stores reach only bronze, silver")


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("0/12/5/3", MessageId(12, 5, 3)),
        ("(12,5,-1,3)", MessageId(12, 5, 3)),
        ("(12, 5, 0, -1)", MessageId(12, 5, 0)),
        ("12:5:-1", MessageId(12, 5, 0)),
        ("12:5:0:3", MessageId(12, 5, 3)),
    ],
)
def test_ids_as_programs_print_them(text: str, id: MessageId) -> None:
    assert message_id(text) == id


def test_what_is_no_id() -> None:
    with pytest.raises(ConfigurationError, match=r"^12: must be the id of a message, such as 0/12/5/0"):
        message_id("12")
