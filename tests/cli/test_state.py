import pytest

from tests.cli.outcome import Command


@pytest.mark.parametrize("key", ["orders:", "stores:1", "42"])
def test_a_state_is_of_a_key_of_something_declared(lakehouse: Command, key: str) -> None:
    done = lakehouse("state", key)
    line = f"lakehouse: {key}: must be one of items, users, orders and a key, such as items:123\n"
    assert (done.code, done.err) == (78, line)


def test_the_state_of_facts_without_tables(lakehouse: Command) -> None:
    done = lakehouse("state", "orders:1")
    line = "lakehouse: orders: there is no table of them yet: `lakehouse run` makes them\n"
    assert (done.code, done.err) == (1, line)
