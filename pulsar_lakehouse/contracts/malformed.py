"""Quarantines messages that break their topic's contract."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED, Decoding, explain
from pulsar_lakehouse.tables.lake import Lake


def quarantine_malformed(lake: Lake, decoding: Decoding, rejected: DataFrame, *, are_new: bool = False) -> None:
    """Append rejected messages to `quarantine.malformed`, unless they are already there: with `are_new`, none is."""
    rows = rejected.transform(explain, decoding=decoding).select(
        F.lit(decoding.topic.name).alias("topic"),
        "message.position",
        "message.key",
        "message.payload",
        "reason",
        "message.event_time",
        "message.publish_time",
        F.current_timestamp().alias("quarantined_at"),
    )
    if are_new:
        lake.table(MALFORMED.name).append(rows)
    else:
        lake.table(MALFORMED.name).append_missing(rows, on=["topic", "position"])
