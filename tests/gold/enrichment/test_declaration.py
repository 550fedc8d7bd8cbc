"""Declarations that make no sense are refused with one line."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup

USER, ITEM = ORDERS.lookups
PARENT = replace(USER, name="parent", on="user.parent_user_id")
KINDS = replace(ITEMS, key=("id", "category"))


def with_lookups(*lookups: Lookup) -> Enrichment:
    return replace(ORDERS, lookups=lookups)


def test_a_lookup_has_the_name_of_its_entity_unless_it_has_its_own() -> None:
    lookups = (Lookup(entity=USERS, on="user_id"), Lookup(entity=USERS, on="item_id", name="receiver"))
    assert with_lookups(*lookups).states == ("users", "receiver")


def test_lookups_that_see_the_same_changes_share_a_feed() -> None:
    past = Lookup(entity=USERS, on="user_id", name="past", join="as_of")
    others = (replace(USER, name="receiver", on="item_id"), replace(USER, name="payer", merged_into=None))
    optional = (replace(each, name=f"maybe_{each.name}", required=False) for each in (past, others[1]))
    enrichment = with_lookups(USER, past, *others, *optional)
    assert [feed.name for feed in enrichment.feeds] == ["user", "maybe_past", "maybe_payer"]
    assert enrichment.state_tables == ("silver.users", "silver.users_history")


@pytest.mark.parametrize(
    ("declare", "line"),
    [
        (
            lambda: replace(USER, join="as_of"),
            "lookup user: joins users as_of a time, but follows merges, which have no time: "
            'use join="latest", or remove merged_into',
        ),
        (lambda: replace(USER, max_merges=0), "lookup user: max_merges is 0: must be 1 or more"),
        (
            lambda: replace(ITEM, entity=replace(ITEMS, keeps_history=False, checks={})),
            "lookup item: joins items as_of a time, which needs a history: "
            'use join="latest", or declare the entity with keeps_history',
        ),
        (
            lambda: with_lookups(replace(USER, on="account.user_id")),
            "orders: lookup user is on account.user_id, but account is no earlier lookup; there are none",
        ),
        (
            lambda: with_lookups(replace(USER, on="customer_id")),
            "orders: lookup user is on customer_id, which is no column; there are invoice_id, line_item_id, "
            "user_id, item_id, item_name, item_category, price, created_at, paid_at",
        ),
        (
            lambda: with_lookups(ITEM, replace(USER, on="user.parent_user_id")),
            "orders: lookup user is on user.parent_user_id, but user is no earlier lookup; there are item",
        ),
        (
            lambda: with_lookups(ITEM, replace(USER, on="item.user_id")),
            "orders: lookup user is on item.user_id, which is no column of items; there are id, created_at, adjective, "
            "category, modifier, name, price",
        ),
        (
            lambda: with_lookups(replace(USER, required=False), PARENT),
            "orders: lookup parent is required, but on user.parent_user_id, and user is not: make both required, or "
            "neither",
        ),
        (
            lambda: replace(ITEM, on=("item_id", "item_category")),
            "lookup item: on item_id, item_category: must be a column for each of the key of items: id",
        ),
        (
            lambda: replace(ITEM, entity=KINDS),
            "lookup item: on item_id: must be a column for each of the key of items: id, category",
        ),
        (
            lambda: Lookup(entity=KINDS, on=("item_id", "item_category"), merged_into="id"),
            "lookup items: follows merges, but the key of items is id, category: remove merged_into, or look up an "
            "entity whose key is one column",
        ),
        (
            lambda: with_lookups(USER, replace(USER, on="item_id")),
            "orders: a column of lookup user can't be named user, which is a column of lookup user",
        ),
        (
            lambda: with_lookups(USER, replace(ITEM, name="user_merged")),
            "orders: a column of lookup user_merged can't be named user_merged, which is a column of lookup user",
        ),
        (
            lambda: with_lookups(replace(ITEM, name="Price")),
            "orders: a column of lookup Price can't be named Price, which is a column of orders itself",
        ),
        (
            lambda: with_lookups(replace(ITEM, name="order_date")),
            "orders: a column of lookup order_date can't be named order_date, which is a column of the day",
        ),
        (
            lambda: replace(ORDERS, day="price"),
            "orders: a column of the day can't be named price, which is a column of orders itself",
        ),
        (
            lambda: with_lookups(replace(ITEM, name="missing")),
            "orders: a column of lookup missing can't be named missing, which is a column of the enrichment",
        ),
        (
            lambda: with_lookups(replace(ITEM, name="_item_key")),
            "orders: a column of lookup _item_key can't be named _item_key, which is a column of the enrichment",
        ),
        (
            lambda: replace(ORDERS, columns={**ORDERS.columns, "reason": "itemName"}),
            "orders: a column of orders itself can't be named reason, which is a column of the enrichment",
        ),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(declare: Callable[[], object], line: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(line)}$"):
        declare()
