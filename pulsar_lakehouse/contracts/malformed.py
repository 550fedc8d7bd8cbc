"""Quarantines messages that break their topic's contract."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED, Decoding, explain
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.tables.lake import Lake


def quarantine_malformed(lake: Lake, decoding: Decoding, rejected: DataFrame, *, are_new: bool = False) -> None:
    """Append rejected messages to `quarantine.malformed`, unless they are already there: with `are_new`, none is."""
    topic = decoding.topic
    rows = rejected.transform(explain, decoding=decoding).select(
        F.lit(topic.name).alias("topic"),
        *place_of(F.col("message.position"), topic),
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
        lake.table(MALFORMED.name).append_missing(rows, on=["topic", *place_in(topic)])


def place_of(position: Column, topic: Topic) -> list[Column]:
    """The columns in which tables of several topics have the position of a row."""
    if not topic.rows:
        return [position.alias("position")]
    return [position.dropFields("row").alias("position"), position["row"].alias("row")]


def place_in(topic: Topic) -> list[str]:
    """The names of these columns."""
    return ["position", "row"] if topic.rows else ["position"]


def position_in(topic: Topic) -> Column:
    """Over such a table: the position of a row as other tables of its topic have it."""
    position = F.col("position").withField("row", F.col("row")) if topic.rows else F.col("position")
    return position.alias("position")


def is_same_row(one: Column, other: Column, topic: Topic) -> Column:
    """Whether two positions are of the same row, or of the same message if one of them is of it as a whole."""
    if not topic.rows:
        return one == other
    is_whole = (one["row"] < 0) | (other["row"] < 0)
    return (one.dropFields("row") == other.dropFields("row")) & (is_whole | (one["row"] == other["row"]))
