"""The transactions topic, how transactions are enriched, and the checks of enriched transactions.

Amounts are sent as text, such as "12.50", and are exact DECIMALs.
"""

from pulsar_lakehouse import Enrichment, Lookup, Topic, quarantine

from .accounts import ACCOUNTS
from .customers import CUSTOMERS

TRANSACTIONS = Enrichment(
    topic=Topic(
        "transactions",
        """
        transactionId STRING NOT NULL, accountId STRING NOT NULL, customerId STRING NOT NULL,
        eventTime TIMESTAMP_MILLIS NOT NULL, type STRING NOT NULL, operation STRING, amount DECIMAL(18, 2) NOT NULL,
        balance DECIMAL(18, 2) NOT NULL
        """,
        record="Transaction",
    ),
    columns="""
        transactionId AS transaction_id,
        accountId AS account_id,
        customerId AS customer_id,
        eventTime AS made_at,
        type,
        operation,
        amount,
        balance
    """,
    keys=("transaction_id",),
    event_time="made_at",
    day="day",
    lookups=(
        Lookup(name="customer", entity=CUSTOMERS, on="customer_id"),
        Lookup(name="account", entity=ACCOUNTS, on="account_id", join="as_of"),
    ),
    checks={
        "type_is_credit_or_debit": quarantine("type IN ('Credit', 'Debit')"),
        "amount_is_positive": quarantine("amount > 0"),
    },
    correction_days=3650,  # the workload's transactions are from January 2026, whenever it is sent
    publish_to="enriched_transactions",
)
