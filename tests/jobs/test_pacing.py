"""When the rounds of `lakehouse run --every` are due, at literal times."""

import pytest

from pulsar_lakehouse.jobs.pacing import Rounds


@pytest.mark.parametrize(
    ("changes", "facts", "at", "seen", "is_due"),
    [
        pytest.param(0, 0, 105.0, {"users": 1}, False, id="nothing is new"),
        pytest.param(0, 0, 105.0, {"users": 2}, True, id="a message has come"),
        pytest.param(0, 0, 105.0, None, True, id="one can't look"),
        pytest.param(0, 0, 160.0, {"users": 1}, True, id="a minute has passed"),
        pytest.param(3, 0, 105.0, {"users": 1}, True, id="the last round has read changes"),
        pytest.param(0, 3, 105.0, {"users": 1}, True, id="the last round has read facts"),
        pytest.param(None, 0, 105.0, {"users": 1}, True, id="state had a rest in the last round"),
    ],
)
def test_a_round_is_due(
    changes: int | None, facts: int, at: float, seen: dict[str, object] | None, is_due: bool
) -> None:
    rounds = Rounds(every=1)
    rounds.round_ended(at=100.0, seen={"users": 1}, changes=changes, facts=facts)
    assert rounds.is_due(at=at, seen=seen) == is_due


def test_the_first_round_is_due_with_state() -> None:
    rounds = Rounds(every=1)
    assert (rounds.is_due(at=0.5, seen={}), rounds.is_state_due(at=0.5)) == (True, True)


@pytest.mark.parametrize(
    ("took", "facts", "due_at"),
    [
        pytest.param(2.0, 5, 106.0, id="twice as long as it took"),
        pytest.param(20.0, 5, 135.0, id="at most 15 s"),
        pytest.param(2.0, 0, 0.0, id="not without facts"),
    ],
)
def test_state_rests_while_there_are_facts(took: float, facts: int, due_at: float) -> None:
    rounds = Rounds(every=1)
    rounds.state_ended(began=100.0, ended=100.0 + took)
    rounds.round_ended(at=100.0 + took, seen={}, changes=1, facts=facts)
    assert rounds.is_state_due(at=due_at)
    assert not rounds.is_state_due(at=due_at - 0.1)


@pytest.mark.parametrize(("took", "pause"), [(0.5, 1.5), (1.95, 0.1), (30.0, 0.1)])
def test_others_get_a_moment_between_rounds(took: float, pause: float) -> None:
    assert Rounds(every=2).pause(began=100.0, ended=100.0 + took) == pause
