import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

from pulsar_lakehouse.domains.ledger.workload import Workload
from pulsar_lakehouse.pulsar.produce import Message

TIDY = Workload(customers=1_000, transactions=20_000, duplicates=0, malformed=0)


def bodies(messages: list[Message]) -> list[dict[str, Any]]:
    return [json.loads(message.payload) for message in messages if message.payload]


def test_every_transaction_comes_once_in_one_of_the_phases() -> None:
    first, late = list(TIDY.first("transactions")), list(TIDY.late("transactions"))
    assert sorted(each.key for each in [*first, *late]) == [f"T{number:08}" for number in range(1, 20_001)]
    assert 300 < len(late) < 500


def test_the_reported_balance_is_the_sum_of_the_transactions_until_then() -> None:
    by_account: dict[str, Decimal] = defaultdict(Decimal)
    sent = bodies([*TIDY.first("transactions"), *TIDY.late("transactions")])
    for each in sorted(sent, key=lambda each: each["transactionId"]):
        if int(each["accountId"][1:]) <= TIDY.accounts:
            change = Decimal(each["amount"])
            by_account[each["accountId"]] += change if each["type"] == "Credit" else -change
    last = {each["accountId"]: Decimal(each["balance"]) for each in sorted(sent, key=lambda each: each["eventTime"])}
    known = {account: balance for account, balance in last.items() if by_account[account] == balance}
    assert len(known) > 0.8 * TIDY.accounts  # in others, a transaction names an account that never comes


def test_some_customers_and_accounts_never_come() -> None:
    sent = bodies(list(TIDY.first("transactions")))
    assert 150 < sum(int(each["customerId"][1:]) > 1_000 for each in sent) < 250
    assert 70 < sum(int(each["accountId"][1:]) > TIDY.accounts for each in sent) < 130


def test_customers_move_and_are_deleted() -> None:
    changes = list(TIDY.late("customers"))
    moved = [message for message in changes if message.payload and message.event_time >= TIDY.start]
    assert (len(moved), sum(message.payload is None for message in changes)) == (2 * 50, 10)


def test_accounts_move_and_are_closed() -> None:
    changes = bodies(list(TIDY.late("accounts")))
    closed = [each for each in changes if each["closedAt"] is not None]
    assert (len(changes), len(closed)) == (8 + 2 * 40 + 8, 8)
    assert all(each["closedAt"] == each["updateTime"] for each in closed)
