"""What the ledger's tables must hold, computed from the messages alone.

Transactions are joined with the latest state of their customer at the time of the round, and with the state that their
account had at the time of the transaction.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pulsar_lakehouse.pulsar.produce import Message
from tests.oracle import EPOCH
from tests.oracle_lookups import Row

Messages = Mapping[str, Sequence[Message]]
"""Messages by topic."""
DAY = timedelta(days=1)


def moment(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def enriched(first: Messages, late: Messages) -> list[Row]:
    """Gold, after a round for each phase. What was joined in the first round stays unless its account has changed."""
    both = {topic: [*first[topic], *late[topic]] for topic in first}
    before = {fact["transaction_id"]: joined(fact, first) for fact in facts(first["transactions"])}
    rows = []
    for fact in facts(both["transactions"]):
        now, then = joined(fact, both), before.get(fact["transaction_id"])
        if now:
            rows.append(then if then and then["account"] == now["account"] else now)
    return rows


def facts(messages: Iterable[Message]) -> list[Row]:
    """Each transaction once."""
    found = {}
    for each in good(messages):
        value = json.loads(each.payload or b"")
        found[value["transactionId"]] = {
            "transaction_id": value["transactionId"],
            "account_id": value["accountId"],
            "customer_id": value["customerId"],
            "made_at": moment(value["eventTime"]),
            "type": value["type"],
            "operation": value["operation"],
            "amount": Decimal(value["amount"]),
            "balance": Decimal(value["balance"]),
            "day": moment(value["eventTime"]).date(),
        }
    return list(found.values())


def joined(fact: Row, messages: Messages) -> Row | None:
    """The transaction with its customer and account; None if one of them is missing, or was gone by then."""
    customer = newest(messages["customers"], fact["customer_id"])
    account = newest(messages["accounts"], fact["account_id"], until=fact["made_at"])
    if not customer or not account:
        return None
    if customer.payload is None and moment(customer.event_time) <= fact["made_at"]:
        return None
    known = json.loads(customer.payload or b"{}")
    state = json.loads(account.payload or b"{}")
    if state["closedAt"] is not None and moment(state["closedAt"]) <= fact["made_at"]:
        return None
    return fact | {
        "customer": {
            "customer_id": customer.key,
            "full_name": known.get("fullName"),
            "email": known.get("email"),
            "city": known.get("city"),
            "updated_at": moment(known["updateTime"]) if known else None,
        },
        "account": {
            "account_id": account.key,
            "district_id": state["districtId"],
            "frequency": state["frequency"],
            "created_on": date.fromisoformat(state["creationDate"]),
            "updated_at": moment(state["updateTime"]),
        },
    }


def newest(messages: Iterable[Message], key: str, until: datetime | None = None) -> Message | None:
    found = [each for each in good(messages) if each.key == key and (not until or moment(each.event_time) <= until)]
    return max(found, key=lambda each: each.event_time, default=None)


def good(messages: Iterable[Message]) -> list[Message]:
    return [each for each in messages if not each.broken]


def balances(gold: Iterable[Row]) -> dict[str, list[Row]]:
    """The SQL tables, by name."""
    by_account: dict[Any, list[Row]] = defaultdict(list)
    by_day: dict[Any, list[Row]] = defaultdict(list)
    by_customer: dict[Any, list[Row]] = defaultdict(list)
    by_week: dict[Any, list[Row]] = defaultdict(list)
    for row in gold:
        midnight = row["made_at"].replace(hour=0, minute=0, second=0, microsecond=0)
        by_account[row["account_id"]].append(row)
        by_day[row["account_id"], midnight].append(row)
        by_customer[row["customer_id"]].append(row)
        for days in range(7):
            by_week[row["customer_id"], midnight - days * DAY].append(row)
    return {
        "balance_by_account": [
            {
                "account_id": account,
                "transactions": len(rows),
                "balance": balance(rows),
                "last_transaction": max(row["made_at"] for row in rows),
            }
            for account, rows in by_account.items()
        ],
        "balance_by_account_and_day": [
            {
                "account_id": account,
                "window_start": start,
                "window_end": start + DAY,
                "transactions": len(rows),
                "credits": total(rows, "Credit"),
                "debits": total(rows, "Debit"),
                "balance_change": balance(rows),
            }
            for (account, start), rows in by_day.items()
        ],
        "balance_by_customer": [
            {"customer_id": customer, "transactions": len(rows), "balance": balance(rows)}
            for customer, rows in by_customer.items()
        ],
        "balance_by_customer_and_week": [
            {
                "customer_id": customer,
                "window_start": start,
                "window_end": start + 7 * DAY,
                "transactions": len(rows),
                "balance_change": balance(rows),
            }
            for (customer, start), rows in by_week.items()
        ],
    }


def total(rows: Iterable[Row], kind: str) -> Decimal:
    return sum((row["amount"] for row in rows if row["type"] == kind), Decimal("0.00"))


def balance(rows: Sequence[Row]) -> Decimal:
    return total(rows, "Credit") - total(rows, "Debit")
