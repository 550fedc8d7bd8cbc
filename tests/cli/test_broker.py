from tests.cli.outcome import Command, Outcome


def test_up_and_down_are_safe_to_repeat(lakehouse: Command) -> None:
    assert lakehouse("down") == Outcome(0, "No embedded broker was running.\n", "")
