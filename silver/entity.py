"""Declare how a changelog topic becomes a table of latest state."""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.contracts.columns import COLUMNS, Columns
from lakehouse.contracts.decoding import Decoding
from lakehouse.contracts.topics import Topic
from lakehouse.delta.tables import Table
from lakehouse.errors import ConfigurationError

SEQUENCE = """STRUCT<
    event_time: TIMESTAMP, publish_time: TIMESTAMP, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT
>"""
"""The total order of messages: by event time, then publish time, then position in the topic. Ledger ids are unique
across partitions, so no two messages are equal. A message without event time uses its publish time."""

ADDED = ("deleted_at", "sequence", "valid_from", "valid_until", "given", "message", "reason")
"""Columns that an entity can't declare."""
VALIDITY = "valid_from TIMESTAMP, valid_until TIMESTAMP"


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A keyed changelog and its silver table.

    Raises ConfigurationError for `ignore_null_updates` without `keeps_history`, a `key` that is not one of the columns,
    and a column with the name of one that is added.
    """

    topic: Topic
    """The changelog. Its name is the entity's."""
    key: str
    """The column that identifies a row. It must have a value, and must equal the message key if the message has one.
    A tombstone has only the message key to say which key it deletes."""
    columns: Columns = COLUMNS
    """By name, SQL over the topic's fields and the message (`message.topic`, `message.properties`,
    `message.position`, `message.event_time`), or a text such as `"id, city, nullif(closedAt, -1) AS closed"`, in which
    a bare name stands for itself. The types of the columns are those of their SQL."""
    deleted_at: str = "NULL"
    """SQL over the same: the time from which the key is deleted, or NULL."""
    keeps_history: bool = True
    """Whether there is a table of all versions, for joins as of a time."""
    ignore_null_updates: bool = False
    """Whether messages are partial updates: a NULL field keeps its previous value, unless the key was deleted since.
    Needs `keeps_history`."""
    keep_deleted: int = 90
    """Days after which a deleted key may be purged. Without the history, an older message that arrives after that
    brings the key back."""

    @property
    def name(self) -> str:
        return self.topic.name

    def is_expired(self, deleted_at: Column, published: Column) -> Column:
        """Whether the delete of a key took effect and was published more than `keep_deleted` days ago."""
        since = F.current_timestamp() - F.make_dt_interval(F.lit(self.keep_deleted))
        return F.coalesce(deleted_at < since, F.lit(False)) & (published < since)

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            topic=self.topic,
            columns={**self.columns, "deleted_at": f"CAST({self.deleted_at} AS TIMESTAMP)"},
        )

    @property
    def values(self) -> tuple[str, ...]:
        """All columns except the key."""
        return tuple(name for name in self.columns if name != self.key)

    def __post_init__(self) -> None:
        if self.key not in self.columns:
            raise ConfigurationError(f"{self.name}: key {self.key}: must be one of {', '.join(self.columns)}")
        if taken := [name for name in self.columns if name.lower() in ADDED]:
            raise ConfigurationError(f"{self.name}: column {taken[0]}: silver adds one of that name: choose another")
        if self.ignore_null_updates and not self.keeps_history:
            raise ConfigurationError(f"{self.name}: ignore_null_updates needs keeps_history")

    @property
    def table(self) -> Table:
        """Latest state, one row per key."""
        return self._table(self.name)

    @property
    def history(self) -> Table:
        """All versions, one row per message. Each was the state from `valid_from` until just before `valid_until`.

        The last version has no `valid_until`. A version that was replaced at the same event time was never valid: its
        two times are equal. With partial updates, `given` names the fields that the message had.
        """
        given = ", given ARRAY<STRING>" if self.ignore_null_updates else ""
        return self._table(f"{self.name}_history", f", {VALIDITY}{given}")

    def _table(self, name: str, more: str = "") -> Table:
        return Table(
            name=f"silver.{name}",
            columns=lambda: f"{self.decoding.ddl}, sequence {SEQUENCE}{more}",
            properties={"delta.enableChangeDataFeed": "true"},
        )
