"""The suite of bronze.<topic>: messages as they arrived."""

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.expectations.suites import Severity, Suite, logged, not_null, unique, volume

POSITION = ("partition", "ledger_id", "entry_id", "batch_index")


def landed(topic: Topic, *, quiet_for: str, placed: tuple[str, ...] = ()) -> Suite:
    """`placed` are the tables that hold the topic's well-formed messages, each in one of them: their rows must add up.

    Without `placed`, there is no such rule. `quiet_for`, an SQL interval, is how long the topic may have no messages;
    without it, forever, as a source that does not change.
    """
    places = " + ".join(f"{{{table}}}" for table in (*placed, f"{MALFORMED.name}.{topic.name}"))
    freshness = f"{{newest}} > now() - INTERVAL {quiet_for}"
    fresh = (logged("is_fresh", freshness, Severity.WARNING, shows="{newest}"),) if quiet_for else ()
    # Of kinds and of many rows, `lakehouse reconcile` counts these.
    conserved = (logged("nothing_is_lost", f"{{rows}} = {places}"),) if placed and topic.is_plain else ()
    return Suite(
        table=topic.bronze_table,
        key=POSITION,
        arrives="landed_at",
        rules=(
            *not_null(*POSITION, "publish_time", "landed_at"),
            unique(*POSITION),
            *conserved,
            *fresh,
            *volume(),
        ),
    )
