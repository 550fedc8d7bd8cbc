"""What makes a changelog topic a table of latest state."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.contracts.decoding import Decoding
from lakehouse.contracts.topics import Topic
from lakehouse.delta.tables import Table
from lakehouse.errors import ConfigurationError

SEQUENCE = """STRUCT<
    event_time: TIMESTAMP, publish_time: TIMESTAMP, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT
>"""
"""The total order of messages: event time, then publish time, then place in the topic (ledgers are numbered across
all partitions, so no two messages are equal). A message without event time counts at its publish time."""

STATE = f"deleted_at TIMESTAMP, sequence {SEQUENCE}"
VALIDITY = "valid_from TIMESTAMP, valid_until TIMESTAMP"


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A keyed changelog and its silver table.

    `columns` are SQL over the topic's fields and the message (`message.topic`, `message.properties`,
    `message.position`, `message.event_time`), `types` their types as DDL. `key` is one of the columns, required, and
    equal to the message key where there is one: a tombstone says whom it deletes by its message key alone.
    `deleted_at` is SQL too: the time from which the key is deleted, or NULL. `keeps_history` adds a table of all
    versions, for joins as of a time.
    """

    topic: Topic
    key: str
    key_type: str
    columns: Mapping[str, str]
    types: str
    deleted_at: str = "CAST(NULL AS TIMESTAMP)"
    keeps_history: bool = True
    ignore_null_updates: bool = False
    """Whether messages are partial updates: a NULL field keeps the value that it had, unless the key was deleted since.
    Needs the history."""
    keep_deleted: int = 90
    """Days after which a deleted key may be forgotten. Without the history, an older message that comes later than
    that brings it back."""

    @property
    def name(self) -> str:
        return self.topic.name

    def is_expired(self, deleted_at: Column, published: Column) -> Column:
        """Whether a key was deleted, and that was published, so long ago that it may be forgotten."""
        since = F.current_timestamp() - F.make_dt_interval(F.lit(self.keep_deleted))
        return F.coalesce(deleted_at < since, F.lit(False)) & (published < since)

    @property
    def decoding(self) -> Decoding:
        return Decoding(
            topic=self.topic,
            columns={**self.columns, "deleted_at": self.deleted_at},
            types=f"{self.types}, deleted_at TIMESTAMP",
        )

    @property
    def values(self) -> tuple[str, ...]:
        """The columns but for the key."""
        return tuple(name for name in self.columns if name != self.key)

    def __post_init__(self) -> None:
        if self.ignore_null_updates and not self.keeps_history:
            raise ConfigurationError(f"{self.name}: ignore_null_updates needs keeps_history")

    @property
    def table(self) -> Table:
        """Latest state, a row a key."""
        return self._table(self.name, STATE)

    @property
    def history(self) -> Table:
        """All versions, a row a message: each was the state from `valid_from` on, and before `valid_until`.

        The last has no `valid_until`. One that was replaced at the same event time was never valid: both are equal.
        Of partial updates, `given` names the fields that the message had.
        """
        given = ", given ARRAY<STRING>" if self.ignore_null_updates else ""
        return self._table(f"{self.name}_history", f"{STATE}, {VALIDITY}{given}")

    def _table(self, name: str, more: str) -> Table:
        return Table(
            name=f"silver.{name}",
            columns=f"{self.types}, {more}",
            properties={"delta.enableChangeDataFeed": "true"},
        )
