"""The model keeps what is promised, and finds each bug that is planted in it."""

from functools import partial
from typing import Any

import pytest

from tests.model.explorer import Model, explore, the_end_can_be_reached
from tests.model.invariants import ALWAYS, EACH_COMMIT
from tests.model.protocol import Scope, is_end
from tests.model.world import Bronze, Rules, World

LANDS = Scope(messages=3, writers=("A",), commands=("land",), has_engine=False, loses=True)
ENRICHES = Scope(writers=("A",), has_engine=False, loses=True)
COMPETES = Scope(commands=("land",), has_engine=False)
BORROWS = Scope(writers=("A",), commands=("land",))
LENDS = Scope(commands=("land",))
LANDED = World(sent=1, acknowledged=1, bronze=Bronze((0,), 1, 0))
MAINTAINS = Scope(writers=("A",), commands=("enrich --every",), has_engine=False, maintains=True, start=LANDED)
SMALL = {
    "lands": LANDS,
    "enriches": ENRICHES,
    "competes": COMPETES,
    "borrows": BORROWS,
    "lends": LENDS,
    "maintains": MAINTAINS,
}
LARGE = Scope()
"""Two writers with the engine."""


def model_of(scope: Scope, only: str = "") -> Model[World]:
    """The model; with `only`, one thing of what must hold."""
    always = [each for each in ALWAYS if only in ("", each.__name__)]
    each_commit = [each for each in EACH_COMMIT if only in ("", each.__name__)]
    return Model(scope.start, scope.steps, always, each_commit, partial(is_end, scope))


@pytest.mark.parametrize("name", SMALL)
def test_what_is_promised_holds(name: str) -> None:
    found = explore(model_of(SMALL[name]))
    assert (found.broken, found.trace) == ("", ())


@pytest.mark.long
def test_what_is_promised_holds_of_two_writers_and_the_engine() -> None:
    found = explore(model_of(LARGE))
    assert (found.broken, found.trace, found.states > 1_000_000) == ("", (), True)


OTHER_ORDER = {
    "rows before offsets": ("rows", "offsets", "commits", "acknowledge"),
    "commits before rows": ("offsets", "commits", "rows", "acknowledge"),
    "acknowledged before rows": ("acknowledge", "offsets", "rows", "commits"),
}
BUGS = [
    ("lease_is_exclusive", COMPETES, "one_process_writes_a_table"),
    ("own_jvm_inherits", COMPETES, "a_dead_owners_spark_never_writes_after_a_successor"),
    ("lent_jvm_holds", LENDS, "a_dead_owners_spark_never_writes_after_a_successor"),
    ("held_before_work", LENDS, "a_dead_owners_spark_never_writes_after_a_successor"),
    ("one_loan_at_a_time", Scope(), "a_spark_that_begins_is_idle"),
    ("dead_before_free", LENDS, "a_dead_owners_spark_never_writes_after_a_successor"),
    ("unwell_is_killed", LENDS, "a_spark_that_begins_is_idle"),
    ("given_back_clean", LENDS, "a_spark_that_begins_is_idle"),
    ("free_once_given_back", BORROWS, "the_end_can_be_reached"),
    ("death_is_noticed", BORROWS, "the_end_can_be_reached"),
    ("rows before offsets", LANDS, "rows_are_never_ahead_of_offsets"),
    ("commits before rows", LANDS, "offsets_are_never_ahead_of_rows"),
    ("acknowledged before rows", LANDS, "nothing_is_acknowledged_before_it_has_landed"),
    ("batch_is_named", LANDS, "nothing_is_there_twice"),
    ("known_batch_is_left_out", LANDS, "nothing_is_there_twice"),
    ("checkpoint_is_checked", LANDS, "nothing_is_left_out"),
    ("table_is_checked", LANDS, "nothing_is_there_twice"),
    ("same_end_again", LANDS, "nothing_is_left_out"),
    ("goes_on_after_rows", LANDS, "nothing_is_there_twice"),
    ("placed_are_left", ENRICHES, "nothing_is_there_twice"),
    ("gold_before_wait_ends", ENRICHES, "gold_never_goes_back"),
    ("state_is_newest", ENRICHES, "the_end_can_be_reached"),
    ("done_after_rows", ENRICHES, "each_fact_is_somewhere"),
    ("compaction_has_turn", MAINTAINS, "maintenance_stops_no_batch"),
    ("round_has_turn", MAINTAINS, "maintenance_stops_no_batch"),
    ("old_files_stay_a_week", MAINTAINS, "a_reader_finds_its_files"),
]


def planted(bug: str) -> Rules:
    broken: dict[str, Any] = {"stages_of_landing": OTHER_ORDER[bug]} if bug in OTHER_ORDER else {bug: False}
    return Rules(**broken)


@pytest.mark.parametrize(("bug", "scope", "broken"), BUGS, ids=[bug for bug, *_ in BUGS])
def test_a_planted_bug_is_found(bug: str, scope: Scope, broken: str) -> None:
    assert explore(model_of(scope._replace(rules=planted(bug)), only=broken)).broken == broken


def test_each_rule_is_broken_by_a_bug() -> None:
    assert {bug for bug, *_ in BUGS} - OTHER_ORDER.keys() == {*Rules._fields} - {"stages_of_landing"}
    assert the_end_can_be_reached.__name__ in {broken for *_, broken in BUGS}
