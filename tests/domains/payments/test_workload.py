from collections import Counter

from pulsar_lakehouse.domains.payments.workload import EVENTS, TOPICS, Workload

TIDY = Workload(invoices=1_000, duplicates=0, malformed=0)


def test_some_invoices_are_in_both_topics() -> None:
    sent = Counter(message.key for topic in TOPICS for message in (*TIDY.first(topic), *TIDY.late(topic)))
    assert sent.keys() == {f"I{number}" for number in range(1_000)}
    assert 10 < sum(times == 2 for times in sent.values()) < 30


def test_payments_are_corrected_or_cancelled_late() -> None:
    first = {message.key for message in TIDY.first(EVENTS) if (message.properties or {})["type"] == "payment"}
    again = [message for message in TIDY.late(EVENTS) if message.key in first]
    assert 10 < sum(message.payload is None for message in again) < 30
    assert 15 < sum(message.payload is not None for message in again) < 45
