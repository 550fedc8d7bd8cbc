import pyarrow as pa
import pytest

from pulsar_lakehouse.domains.payments.declarations.functions import network
from pulsar_lakehouse.domains.payments.workload import with_check_digit


def test_the_network_of_a_card() -> None:
    cards = ["378282246310005", "4111111111111111", "4222222222222", "5555555555554444", "6011111111111117", None]
    assert network.call(pa.array(cards)).to_pylist() == ["amex", "visa", "visa", "mastercard", "other", None]


@pytest.mark.parametrize("card", ["4111111111111112", "411111111111", "4111 1111 1111 1111", "", "cash"])
def test_what_is_no_card_number(card: str) -> None:
    with pytest.raises(ValueError, match="no card number"):
        network.call(pa.array(["4111111111111111", card]))


@pytest.mark.parametrize(
    ("digits", "card"), [("411111111111111", "4111111111111111"), ("37828224631000", "378282246310005")]
)
def test_the_check_digit(digits: str, card: str) -> None:
    assert with_check_digit(digits) == card
