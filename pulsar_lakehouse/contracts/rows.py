"""Counts the rows of messages that can have many."""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import Decoding, of_kind, positions


class Landed(NamedTuple):
    messages: int
    rows: int | None = None
    """Their rows, if they can have many; one without a payload, or whose payload is broken, counts as one."""
    empty: int = 0
    """How many of them have none."""

    @property
    def units(self) -> int:
        """How many rows, or else messages, have to be accounted for."""
        return self.messages if self.rows is None else self.rows


def landed_in(bronze: DataFrame, decoding: Decoding) -> Landed:
    """How many messages of the topic's kind its bronze table has, and how many rows they have."""
    messages = (bronze.transform(of_kind, decoding=decoding) if decoding.topic.where else bronze).count()
    if not decoding.topic.rows:
        return Landed(messages)
    found = bronze.transform(positions, decoding=decoding)
    message = F.col("position").dropFields("row")
    [[rows, with_rows]] = found.agg(F.count("*"), F.count_distinct(message)).collect()
    return Landed(messages, rows, messages - with_rows)
