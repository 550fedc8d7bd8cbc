"""What definitions of tables say about values that new rows would not have."""

from collections.abc import Mapping

import pytest

from pulsar_lakehouse.tables.definitions import lost


@pytest.mark.parametrize(
    ("kept", "declared", "columns"),
    [
        pytest.param({"column city": "city"}, {"column city": "upper(city)"}, [], id="other SQL"),
        pytest.param({"column city": "city"}, {}, ["city"], id="gone"),
        pytest.param({"column city": "city"}, {"column city": "TRY_CAST(NULL AS STRING)"}, ["city"], id="NULL"),
        pytest.param({"column city": "city"}, {"column city": "NULL::STRING"}, ["city"], id="NULL of a type"),
        pytest.param({"column city": "CAST(NULL AS STRING)"}, {}, [], id="was NULL"),
        pytest.param({"lookup store": "stores on store_id"}, {}, ["store"], id="a lookup"),
        pytest.param({"match payment": "payments on id"}, {}, ["payment"], id="a match"),
        pytest.param({"column id": "id"}, {"key": "id"}, [], id="is the key now"),
        pytest.param(
            {"column region": "region"}, {"key": "concat(region, '-', id) AS uid"}, ["region"], id="is part of the key"
        ),
    ],
)
def test_columns_are_lost(kept: Mapping[str, str], declared: Mapping[str, str], columns: list[str]) -> None:
    assert lost(declared, kept) == columns
