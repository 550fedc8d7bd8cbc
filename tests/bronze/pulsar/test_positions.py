from hypothesis import given
from hypothesis import strategies as st

from pulsar_lakehouse.bronze.pulsar.positions import (
    BEGINNING,
    Ledger,
    Offsets,
    Position,
    Range,
    Span,
    backwards,
    between,
    divide,
    entries_within,
    spans_between,
    split,
)

LEDGERS = [Ledger(3, entries=10, bytes=1_000), Ledger(5, entries=4, bytes=4_000), Ledger(9, entries=6, bytes=60)]
SPANS = [Span(3, 0, 9, 1_000), Span(5, 0, 3, 4_000), Span(9, 0, 5, 60)]


def test_offsets_are_text_in_the_checkpoint() -> None:
    offsets = Offsets({"b": Position(12, 0), "a": BEGINNING})
    assert offsets.to_json() == {"a": "-1:-1", "b": "12:0"}
    assert Offsets.from_json(offsets.to_json()) == offsets


def test_all_entries_follow_the_beginning() -> None:
    assert spans_between(LEDGERS, BEGINNING) == SPANS


def test_spans_begin_after_the_start_and_end_with_the_end() -> None:
    assert spans_between(LEDGERS, Position(3, 7), Position(9, 1)) == [
        Span(3, 8, 9, 200),
        Span(5, 0, 3, 4_000),
        Span(9, 0, 1, 20),
    ]


def test_start_and_end_in_one_ledger() -> None:
    assert spans_between(LEDGERS, Position(3, 2), Position(3, 3)) == [Span(3, 3, 3, 100)]


def test_nothing_follows_the_last_entry() -> None:
    assert spans_between(LEDGERS, Position(9, 5)) == []
    assert spans_between(LEDGERS, Position(5, 3), Position(5, 3)) == []


def test_a_start_in_a_deleted_ledger_goes_on_with_the_next() -> None:
    assert spans_between(LEDGERS, Position(4, 99), Position(7, 99)) == [Span(5, 0, 3, 4_000)]


def test_what_is_taken_ends_within_a_span() -> None:
    assert divide(SPANS, entries=12)[0] == [Span(3, 0, 9, 1_000), Span(5, 0, 1, 2_000)]
    assert divide(SPANS, entries=10)[0] == [Span(3, 0, 9, 1_000)]
    assert divide(SPANS, entries=99)[0] == SPANS
    assert divide(SPANS, entries=0)[0] == []


def test_entries_within_a_size() -> None:
    assert [entries_within(SPANS, limit) for limit in (500, 1_000, 3_999, 5_000, 5_060)] == [5, 10, 12, 14, 20]


def test_a_limit_below_one_entry_still_allows_one() -> None:
    assert entries_within(SPANS, 1) == 1
    assert entries_within([], 1) == 0


def test_split_cuts_by_size_not_by_entries() -> None:
    assert split("p", Position(2, 7), SPANS, 2) == [
        Range("p", Position(2, 7), (Span(3, 0, 9, 1_000), Span(5, 0, 0, 1_000))),
        Range("p", Position(5, 0), (Span(5, 1, 3, 3_000), Span(9, 0, 5, 60))),
    ]


def test_split_gives_no_more_ranges_than_entries() -> None:
    assert split("p", BEGINNING, [Span(3, 0, 1, 200)], 5) == [
        Range("p", BEGINNING, (Span(3, 0, 0, 100),)),
        Range("p", Position(3, 0), (Span(3, 1, 1, 100),)),
    ]


def test_entries_between_positions() -> None:
    assert list(between(SPANS, Position(3, 8), Position(5, 2))) == [Position(3, 9), Position(5, 0), Position(5, 1)]
    assert list(between(SPANS, Position(9, 3))) == [Position(9, 4), Position(9, 5)]
    assert list(backwards(SPANS, Position(5, 2))) == [Position(9, entry) for entry in (5, 4, 3, 2, 1, 0)] + [
        Position(5, 3)
    ]


def test_a_range_says_where_it_is() -> None:
    assert str(Range("p", Position(3, 7), (Span(3, 8, 9, 10), Span(5, 0, 0, 10)))) == "p after 3:7 up to 5:0"


@st.composite
def chains(draw: st.DrawFn) -> list[Ledger]:
    """The ledgers of a partition: ids increase, and each entry has at least one byte."""
    ids = sorted(draw(st.sets(st.integers(0, 20), max_size=5)))
    sizes = st.tuples(st.integers(1, 40), st.integers(0, 5_000))
    return [Ledger(id, entries, entries + more) for id in ids for entries, more in [draw(sizes)]]


positions = st.builds(Position, st.integers(-1, 20), st.integers(-1, 40))


@given(ledgers=chains(), start=positions, end=st.none() | positions, parts=st.integers(1, 12))
def test_ranges_cover_every_entry_once_and_in_order(
    ledgers: list[Ledger], start: Position, end: Position | None, parts: int
) -> None:
    wanted = [
        position
        for ledger in ledgers
        for entry in range(ledger.entries)
        if start < (position := Position(ledger.id, entry)) and (end is None or position <= end)
    ]
    ranges = split("p", start, spans_between(ledgers, start, end), parts)
    assert [position for each in ranges for position in between(each.spans, each.start)] == wanted
    assert [each.start for each in ranges] == [start, *(each.end for each in ranges)][: len(ranges)]
    assert len(ranges) <= parts


@given(ledgers=chains(), entries=st.integers(0, 100))
def test_what_is_taken_is_the_first(ledgers: list[Ledger], entries: int) -> None:
    spans = spans_between(ledgers, BEGINNING)
    assert list(between(divide(spans, entries=entries)[0], BEGINNING)) == list(between(spans, BEGINNING))[:entries]


@given(ledgers=chains(), after=positions)
def test_backwards_is_the_reverse(ledgers: list[Ledger], after: Position) -> None:
    spans = spans_between(ledgers, BEGINNING)
    assert list(backwards(spans, after)) == list(between(spans, after))[::-1]
