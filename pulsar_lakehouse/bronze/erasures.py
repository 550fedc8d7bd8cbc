"""Records which messages were erased, so that they don't land again and every erasure is completed."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake

PARTS = ("partition", "ledger_id", "entry_id", "batch_index")
ERASED = "STRUCT<bronze: STRING, topic: STRING, partition: INT, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT>"
"""A message: the name of its table, and its topic and position there."""

REQUESTED, DONE = "requested", "done"
ERASURE = "an erasure"
"""What commits that erase rows say in their user metadata."""

ERASURES = Table(
    name="bronze.erasures",
    columns=f"""
        request STRING, event STRING, subject STRING, messages ARRAY<{ERASED}>, tables MAP<STRING, BIGINT>,
        unreadable BIGINT, is_now BOOLEAN, at TIMESTAMP, requested_by STRING
    """,
    properties={"delta.appendOnly": "true"},
)
"""What `lakehouse forget` has erased: the positions of the messages, and the rows that each table lost.

The `event` is `requested`, before anything is erased, or `done`, whose other columns are NULL but for `at`. `subject`
is the SHA-256 of `<request>:<entity>:<key>`, so it names the person only to somebody who has the key. `unreadable` is
the number of messages that may be of anybody, because neither their key nor their payload can be read.
"""


def erased_messages(lake: Lake, bronze: str | None = None) -> DataFrame:
    """The messages that were erased, or are to be erased, from a bronze table, or from all of them."""
    erased = lake.table(ERASURES.name).read().select(F.explode("messages").alias("message"))
    return erased.where(F.lit(True) if bronze is None else F.col("message.bronze") == bronze).select("message.*")


def with_erasures(lake: Lake, topic: Topic, reconciliation: Reconciliation) -> Reconciliation:
    """Counts the topic's erased messages on both sides. It is a problem if one of them is in bronze."""
    if not lake.table(ERASURES.name).exists():
        return reconciliation
    erased = erased_messages(lake, topic.bronze_table)
    if not (recorded := erased.distinct().count()):
        return reconciliation
    there = lake.table(topic.bronze_table).read().join(erased, on=list(PARTS), how="left_semi").count()
    count, problems = recorded - there, reconciliation.problems
    if there:
        problems += (f"{there:,} landed that are to be erased: run `lakehouse forget` again",)
    accounted = {**reconciliation.accounted, **({"erased": count} if count else {})}
    rows = None if reconciliation.rows is None else reconciliation.rows + count
    landed = reconciliation.landed + count
    return replace(reconciliation, landed=landed, rows=rows, accounted=accounted, problems=problems)


def unfinished(lake: Lake) -> list[str]:
    """The requests that were not completed, oldest first."""
    events = lake.table(ERASURES.name).read()
    done = events.where(F.col("event") == DONE).select("request")
    open_requests = events.join(done, on="request", how="left_anti").orderBy("at")
    return [row.request for row in open_requests.select("request").collect()]
