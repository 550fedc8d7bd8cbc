"""Payments and refunds: two kinds of messages in one topic. The bank tells refunds in batches, many in a message."""

from pulsar_lakehouse import Entity, Topic, warn

PAYMENTS = Entity(
    topic=Topic(
        "payments",
        "id STRING NOT NULL, invoiceId STRING NOT NULL, cents BIGINT NOT NULL, paidAt TIMESTAMP_MILLIS NOT NULL",
        topic="payment-events",
        where="message.properties['type'] = 'payment'",
    ),
    key="id",
    columns="id, invoiceId AS invoice_id, cents, paidAt AS paid_at",
    keeps_history=False,
    checks={"cents_are_positive": warn("cents > 0")},
)
REFUNDS = Entity(
    topic=Topic(
        "refunds",
        """
        batch STRING NOT NULL,
        refunds ARRAY<STRUCT<
            id: STRING NOT NULL, invoiceId: STRING NOT NULL, cents: BIGINT NOT NULL, refundedAt: TIMESTAMP_MILLIS
        >> NOT NULL
        """,
        topic="payment-events",
        where="message.properties['type'] = 'refunds'",
        rows="refunds",
    ),
    key="id",
    columns="row.id AS id, row.invoiceId AS invoice_id, row.cents AS cents, row.refundedAt AS refunded_at, batch",
    keeps_history=False,
)
