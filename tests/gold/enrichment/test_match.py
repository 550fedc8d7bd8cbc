"""Matches that make no sense are refused with one line."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.match import Match

MATCH = Match(entity=USERS, on="user_id", by="parent_user_id", time="created_at", within="1 hour", name="child")


def with_matches(*matches: Match) -> Enrichment:
    return replace(ORDERS, matches=matches)


def test_an_interval_begins_with_the_fact_unless_it_says_otherwise() -> None:
    assert MATCH.span == (timedelta(0), timedelta(hours=1))
    assert replace(MATCH, within=("-90 seconds", "1 day")).span == (timedelta(seconds=-90), timedelta(days=1))
    assert MATCH.wait == timedelta(hours=1, minutes=5)


def test_the_columns_of_a_partner_are_named_as_those_of_the_fact_unless_it_says_otherwise() -> None:
    assert Match(entity=ITEMS, on=("category", "price"), time="created_at", within="1 hour").columns == (
        "category",
        "price",
    )


def test_a_match_adds_its_column_after_those_of_lookups() -> None:
    found = with_matches(MATCH, replace(MATCH, name="")).states
    assert found == ("user", "user_merged", "item", "child", "users")


def changed(**given: Any) -> Callable[[], object]:
    return lambda: replace(MATCH, **given)


RIGHT = "must be a number of seconds, minutes, hours or days, such as 90 minutes"
USERS_COLUMNS = ", ".join(USERS.columns)


@pytest.mark.parametrize(
    ("declare", "line"),
    [
        (changed(within="an hour"), f"match child: within: an hour: {RIGHT}"),
        (changed(within="1 month"), f"match child: within: 1 month: {RIGHT}"),
        (changed(within="9999 days"), "match child: within: 9999 days: must be at most 3650 days"),
        (changed(within=("-9999 days", "1 day")), "match child: within: -9999 days: must be at most 3650 days"),
        (changed(within="999999999 days"), "match child: within: 999999999 days: must be at most 3650 days"),
        (changed(within=("1 hour", "1 day", "2 days")), "match child: within: ('1 hour', '1 day', '2 days'): must be a time, or a beginning and an end"),
        (changed(within=("1 hour", "5 minutes")), "match child: within: ('1 hour', '5 minutes'): ends before it begins"),
        (changed(within="-1 hour"), "match child: within: '-1 hour': ends before it begins"),
        (changed(within=5), "match child: within: 5: must be a text or a tuple of texts, such as (\"id\",), with the comma"),
        (changed(lateness="soon"), f"match child: lateness: soon: {RIGHT}"),
        (changed(lateness="-1 minute"), "match child: lateness: -1 minute: must be 0 seconds or more"),
        (changed(each="last"), 'match child: each: last: must be "first" or "all"'),
        (changed(by=("id", "parent_user_id")), "match child: on and by: user_id and id, parent_user_id: must be as many columns, one or more"),
        (changed(on=(), by=()), "match child: on and by: none and none: must be as many columns, one or more"),
        (changed(by="user_id"), f"match child: by user_id: is no column of users; there are {USERS_COLUMNS}"),
        (changed(time="born_at"), f"match child: time born_at: is no column of users; there are {USERS_COLUMNS}"),
        (
            lambda: with_matches(replace(MATCH, on="user.id")),
            f"orders: match child is on user.id, which is no column; there are {', '.join(ORDERS.columns)}",
        ),
        (
            lambda: with_matches(replace(MATCH, name="user")),
            "orders: a column of match user can't be named user, which is a column of lookup user",
        ),
    ],
)  # fmt: skip
def test_a_match_that_makes_no_sense_is_refused(declare: Callable[[], object], line: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(line)}$"):
        declare()
