"""A stream knows which of its messages are new."""

from contextlib import suppress

from pulsar_lakehouse.gold.enrichment.succession import Succession


def test_messages_are_new_if_all_others_were_placed_by_this_process() -> None:
    succession, found = Succession(), []
    for event in ["4", "5", "caught up", "6", "7", "fails 8", "8", "9", "caught up", "10", "0", "1", "caught up", "2"]:
        if event == "caught up":
            succession.caught_up()
            continue
        with suppress(InterruptedError), succession.batch(int(event.split()[-1])):
            found.append(f"{event}: {'new' if succession.is_new else 'perhaps not'}")
            if event.startswith("fails"):
                raise InterruptedError
    assert found == [
        *("4: perhaps not", "5: perhaps not", "6: new", "7: new", "fails 8: new", "8: perhaps not", "9: perhaps not"),
        *("10: new", "0: perhaps not", "1: perhaps not", "2: new"),
    ]


def test_no_message_is_new_if_there_is_doubt() -> None:
    succession = Succession()
    with succession.batch(1):
        succession.caught_up()
    with succession.batch(2):
        assert succession.is_new
        succession.doubt()
        assert not succession.is_new
    with succession.batch(3):
        assert not succession.is_new
