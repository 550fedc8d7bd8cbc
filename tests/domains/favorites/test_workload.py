from pulsar_lakehouse.domains.favorites.workload import Workload

TIDY = Workload(users=1_000, accounts=50, duplicates=0, malformed=0)


def test_most_users_come_first_and_the_others_late() -> None:
    early = {message.key for message in TIDY.first("account_users")}
    late = {message.key for message in TIDY.late("account_users")}
    assert (len(early), len(early | late)) == (980, 1_000)


def test_not_all_have_favorites() -> None:
    for topic in ("favorite_colors", "favorite_cheeses"):
        assert len({message.key for message in [*TIDY.first(topic), *TIDY.late(topic)]}) == 800


def test_users_move_twice_or_are_deleted_and_half_of_them_come_back() -> None:
    changes = list(TIDY.late("account_users"))
    gone = {message.key for message in changes if message.payload is None}
    back = [message for message in changes if message.key in gone and message.payload is not None]
    assert (len(changes), len(gone)) == (20 + 2 * 100 + 20 + len(back), 20)
    assert {int(message.key) % 2 for message in back} == {1}
