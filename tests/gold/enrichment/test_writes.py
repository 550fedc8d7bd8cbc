"""Where rows with the same keys can be."""

from hypothesis import given
from hypothesis import strategies as st

from pulsar_lakehouse.gold.enrichment.writes import rounded

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
