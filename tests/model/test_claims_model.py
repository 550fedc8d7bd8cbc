"""The model of claims keeps what is promised, and finds each bug that is planted in it."""

import pytest

from tests.model.claims import Rules, model_of_claims
from tests.model.explorer import explore

ONLY_SUSPENDED, ONE_HOLDER = "only_who_was_suspended_commits_after_a_successor", "a_number_has_one_holder"
BUGS = {
    "gives_up_before_expiry": ONLY_SUSPENDED,
    "created_if_absent": ONE_HOLDER,
    "renewed_when_asked": ONLY_SUSPENDED,
    "higher_number_ends": ONLY_SUSPENDED,
    "released_when_quiet": ONLY_SUSPENDED,
}


def test_what_is_promised_holds() -> None:
    found = explore(model_of_claims())
    assert (found.broken, found.trace) == ("", ())


@pytest.mark.parametrize(("bug", "broken"), BUGS.items())
def test_a_planted_bug_is_found(bug: str, broken: str) -> None:
    assert explore(model_of_claims(Rules(**{bug: False}))).broken == broken


def test_each_rule_is_broken_by_a_bug() -> None:
    assert BUGS.keys() == {*Rules._fields}
