from dataclasses import replace

import pytest

from pulsar_lakehouse.cli.arguments import right_key
from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.silver.entity import Entity

KINDS = replace(ITEMS, key=("id", "category"))


@pytest.mark.parametrize(
    ("entity", "key", "right"),
    [
        (USERS, "7", None),
        (USERS, "ada", "a BIGINT, such as users:123"),
        (replace(USERS, key="email_address"), "ada", None),
        (KINDS, '[7,"tools"]', None),
        (KINDS, "[7]", 'a JSON array of id, category, such as [7,"EUR"]'),
        (KINDS, "7", 'a JSON array of id, category, such as [7,"EUR"]'),
    ],
)
def test_a_key_is_what_a_message_key_is(entity: Entity, key: str, right: str | None) -> None:
    assert right_key(entity, key) == right
