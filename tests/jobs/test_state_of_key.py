from typing import Any

import pytest

from domains.shop.declarations.users import USERS
from jobs.retention import states
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


def test_how_much_state_is_kept(seen: Settings) -> None:
    found = {each.purpose: each for each in states(seen)}
    assert {purpose: (each.rows, each.kept) for purpose, each in found.items()} == {
        "versions of items": (2, "forever"),
        "deleted items": (0, "90 d"),
        "versions of users": (4, "forever"),
        "deleted users": (0, "90 d"),
        "orders, to find duplicates": (2, "7 d"),
        "waiting orders": (1, "30 d"),
        "checkpoints": (3, "100 batches"),
    }
    versions = found["versions of users"]
    assert (versions.oldest, versions.newest) == (at(0), at(20))
    assert all((each.size > 0) == (each.rows > 0) for each in found.values())
