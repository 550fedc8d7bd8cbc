from typing import Any

import pytest

from domains.shop.declarations.users import USERS
from jobs.state_of_key import state_of_key
from lakehouse.settings import Settings
from tests.messages import at
from tests.shop import SHOP


def kept(lake: Settings, key: str) -> dict[str, list[tuple[Any, ...]]]:
    return {part.title: part.rows for part in state_of_key(lake, SHOP, USERS, key)}


def test_the_versions_of_a_key_and_the_facts_that_have_it(seen: Settings) -> None:
    found = kept(seen, "2")
    assert dict(found.pop("Latest state of users 2"))["first_name"] == "Ada"
    assert found == {
        "Merged into": [],
        "Merged from": [],
        "Its versions": [
            (at(5), at(20), at(5), ""),
            (at(20), None, None, "first_name Ada, created_at 2026-01-01 00:00:00"),
        ],
        "orders that wait for it, at most 20": [],
        "orders in gold that have it": [("user", 1, at(10), at(10))],
    }


@pytest.mark.parametrize(("key", "title", "other"), [("4", "Merged into", 1), ("1", "Merged from", 4)])
def test_merges(seen: Settings, key: str, title: str, other: int) -> None:
    assert kept(seen, key)[title] == [(other,)]


def test_facts_that_wait_for_a_key_without_state(seen: Settings) -> None:
    found = kept(seen, "8")
    assert found["Latest state of users 8"] == []
    [(invoice, line, reason, attempts, _)] = found["orders that wait for it, at most 20"]
    assert (invoice, line, reason, attempts) == (1, 5, "user missing", 1)
