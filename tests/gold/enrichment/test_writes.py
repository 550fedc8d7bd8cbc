"""Where rows with the same keys can be."""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.gold.enrichment.writes import placed_keys, placed_of, pruning_filter, rounded
from pulsar_lakehouse.spark.frames import of_keys
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home

KEYS = st.integers(-(2**63), 2**63 - 1)


@given(KEYS, KEYS)
def test_rounded_bounds_hold_the_exact_ones(one: int, other: int) -> None:
    low, high = min(one, other), max(one, other)
    down, up = rounded(low, high)
    assert -(2**63) <= down <= low <= high <= up < 2**63


def test_near_batches_share_bounds() -> None:
    assert {rounded(low, low + 3_999) for low in range(0, 32_000, 4_000)} == {(0, 32_767)}


def test_other_bounds_stay_exact() -> None:
    for bounds in [(False, True), ("a", "b"), (0, 10_000_000)]:
        assert rounded(*bounds) == bounds


ALONE = replace(ORDERS, lookups=(), checks={})


@pytest.fixture(scope="module")
def placed(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Line items 1 and 4 of invoice 1 are in gold, 2 waits, and 3 is discarded. Item 4 is of long ago."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path_factory.mktemp("placed")))
    gold = ALONE.gold({})
    for table, items in ((gold, (1, 4)), (ALONE.waiting, (2,)), (ALONE.discarded, (3,))):
        own.create(table)
        rows = [(1, item, (0, 1, item, 0), date(2020 if item == 4 else 2026, 1, 1)) for item in items]
        frame = own.spark.createDataFrame(rows, PLACED)
        frame.write.format("delta").mode("append").save(own.settings.table_path(table.name))
    return own


PLACED = """invoice_id BIGINT, line_item_id BIGINT,
    position STRUCT<partition: INT, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT>, order_date DATE"""


@pytest.mark.parametrize("keys", [[(1, 1)], [(1, 2), (1, 3), (1, 3)], [(1, 1), (1, 4)], [(2, 1)]])
def test_few_keys_are_found_where_many_are(placed: Lake, keys: list[tuple[int, int]]) -> None:
    items = [item for _, item in keys]
    ends = {"order_date": ("2026-01-01", "2026-01-01"), "invoice_id": (1, 2), "line_item_id": (min(items), max(items))}
    pruning = pruning_filter(ends, ALONE)
    wanted = placed.spark.createDataFrame(keys, "invoice_id BIGINT, line_item_id BIGINT")
    few = placed_of(wanted, placed, ALONE, pruning).where(pruning.rows)
    many = of_keys(placed_keys(placed, ALONE, pruning), wanted)
    assert sorted(few.collect()) == sorted(many.collect())
    assert {row.line_item_id for row in few.collect()} == {item for invoice, item in keys if invoice == 1} - {4}
