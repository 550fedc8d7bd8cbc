"""Counts the rows of messages that can have many."""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import Decoding, of_kind


class Landed(NamedTuple):
    messages: int
    rows: int | None = None
    """Their rows, if they can have many; one without a payload, or that is malformed as a whole, counts as one."""
    empty: int = 0
    """How many of them have none."""

    @property
    def units(self) -> int:
        """How many rows, or else messages, have to be accounted for."""
        return self.messages if self.rows is None else self.rows


def units_of(rows: DataFrame, known: DataFrame, messages: DataFrame) -> DataFrame:
    """The `position` of each row of messages that tables have to account for.

    These are the `rows` of today's contract; but a message that the tables know as a whole is one, and one that has no
    rows today, or is malformed as a whole, has those that they know. `known` are the positions in the tables, and
    `messages` those of all messages.
    """
    now, before = (
        positions.groupBy(F.col("position").dropFields("row").alias("_message")).agg(
            F.collect_set("position.row").alias(name)
        )
        for name, positions in (("_now", rows), ("_before", known))
    )
    joined = messages.select(F.col("position").alias("_message")).join(before, on="_message", how="left")
    joined = joined.join(now, on="_message", how="left")
    is_known = F.col("_now").isNull() | F.array_contains("_now", -1)
    units = F.when(F.array_contains("_before", -1), F.array(F.lit(-1)))
    units = units.when(is_known & F.col("_before").isNotNull(), F.col("_before")).otherwise(F.col("_now"))
    each = joined.select("_message", F.explode(units).alias("_row"))
    return each.select(F.col("_message").withField("row", F.col("_row")).alias("position"))


def landed_in(bronze: DataFrame, decoding: Decoding, units: DataFrame | None = None) -> Landed:
    """How many messages of the topic's kind its bronze table has, and how many rows: the `units_of` these messages."""
    messages = (bronze.transform(of_kind, decoding=decoding) if decoding.topic.where else bronze).count()
    if units is None:
        return Landed(messages)
    message = F.col("position").dropFields("row")
    [[rows, with_rows]] = units.agg(F.count("*"), F.count_distinct(message)).collect()
    return Landed(messages, rows, messages - with_rows)
