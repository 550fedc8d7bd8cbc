"""What makes a topic of facts a gold table: what a fact is, what it is joined with, and where each fact can end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from lakehouse.contracts.decoding import Decoding
from lakehouse.contracts.topics import Topic
from lakehouse.delta.tables import POSITION, Table
from lakehouse.errors import ConfigurationError
from lakehouse.spark.declared_sql import try_eval


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A join with an entity: the row of its key becomes the struct `name`.

    `latest` takes the state when the fact is processed. If that turns out to have been deleted before the fact, the
    fact leaves gold. `as_of` takes the state when the fact occurred, from the entity's history: a message that comes
    late corrects the facts that were joined before it came.
    `merged_into` is SQL over the entity's columns: the key of the row that stands for this one since they were merged,
    or NULL. The join follows it to the end, and the column `<name>_merged` holds the keys on the way. A merge that
    comes later, or is undone, corrects the facts too. A row on which it fails was merged before, and can't be rejected
    any more: it counts as not merged. SQL that can fail belongs into a column of the entity, which rejects the message.
    Raises ConfigurationError for merges of what is joined as of a time, and for a `max_merges` of less than one.
    """

    name: str
    entity: str
    on: str
    """The fact's column that holds the entity's key."""
    key: str = "id"
    join: Literal["latest", "as_of"] = "latest"
    merged_into: str | None = None
    max_merges: int = 100
    """How many merges are followed. A fact that more of them lead on from waits until they are fewer."""

    def __post_init__(self) -> None:
        if self.is_as_of and self.merged_into is not None:
            raise ConfigurationError(
                f"lookup {self.name}: joins {self.entity} as_of a time, and follows merges, which have no time: "
                'must be join="latest", or have no merged_into'
            )
        if self.max_merges < 1:
            raise ConfigurationError(f"lookup {self.name}: max_merges is {self.max_merges}: must be 1 or more")

    def merges_into(self, kind: DataType) -> Column:
        """Over the entity's columns: the value of `merged_into`, as a key, which is of this type."""
        assert self.merged_into is not None
        return F.when(F.col(self.key).isNotNull(), try_eval(F.expr(self.merged_into).cast(kind)))

    @property
    def merged(self) -> str:
        """The column with the merged keys, from the fact's own on; NULL if it was not merged."""
        return f"{self.name}_merged"

    @property
    def used_keys(self) -> Column:
        """Over gold's columns: the keys, as text, whose state a fact was joined with, the merged ones first."""
        merged = F.col(self.merged) if self.merged_into else F.lit(None)
        return F.array_append(F.coalesce(merged, F.array()), F.col(self.name)[self.key]).cast("array<string>")

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns in gold."""
        return (self.name, self.merged) if self.merged_into else (self.name,)

    @property
    def is_as_of(self) -> bool:
        return self.join == "as_of"

    @property
    def table(self) -> str:
        return f"silver.{self.entity}_history" if self.is_as_of else f"silver.{self.entity}"


@dataclass(frozen=True, kw_only=True)
class Enrichment:
    """Facts of a topic joined with state.

    `columns` are SQL over the topic's fields, `types` their types as DDL. Facts with equal `keys` are duplicates.
    `event_time` is the column with a fact's own time: state deleted before it counts as missing.
    `day` names the partition column, the date of `event_time`. A fact that comes again with a day that is more than
    `dedup_days` days from the first one's is a fact of its own.
    """

    topic: Topic
    columns: Mapping[str, str]
    types: str
    keys: tuple[str, ...]
    event_time: str
    day: str
    lookups: tuple[Lookup, ...]
    rules: Mapping[str, str] = field(default_factory=dict)
    """By name, SQL over the columns that must be TRUE of each fact. One that fails any goes to `quarantine.malformed`,
    with the names of all those, as if it broke the contract; SQL that ends in an error is not TRUE."""
    dedup_days: int = 7
    retry_days: int = 30
    """Days that a fact waits for state. After them it wakes only when it is released."""
    correction_days: int = 365
    """Days after which late state does not correct a fact in gold: from when it occurred to when that was published."""
    publish_to: str | None = None
    """The Pulsar topic that `lakehouse publish` keeps equal to gold."""

    @property
    def decoding(self) -> Decoding:
        return Decoding(topic=self.topic, columns=self.columns, types=self.types)

    @property
    def gold_table(self) -> str:
        return f"gold.enriched_{self.topic.name}"

    @property
    def shadow(self) -> str:
        """The table with the rows of gold that would differ after the last dry run of a backfill, before and after."""
        return f"gold.shadow_{self.topic.name}"

    @property
    def places(self) -> tuple[str, ...]:
        """The tables of which one has each fact that keeps its contract."""
        return self.gold_table, self.waiting.name, self.duplicates.name, self.discarded.name

    @property
    def states(self) -> tuple[str, ...]:
        """The columns that the lookups add."""
        return tuple(name for lookup in self.lookups for name in lookup.adds)

    @property
    def gold_columns(self) -> tuple[str, ...]:
        return (*self.columns, *self.states, "position", self.day)

    def gold(self, states: Mapping[str, StructType]) -> Table:
        """Complete facts; `states` are the columns of the latest state of each lookup's entity, by its name."""
        added: dict[str, str] = {}
        for lookup in self.lookups:
            row = states[lookup.name]
            added[lookup.name] = row.simpleString()
            if lookup.merged_into is not None:
                added[lookup.merged] = f"array<{row[lookup.key].dataType.simpleString()}>"
        joined = ", ".join(f"`{name}` {kind}" for name, kind in added.items())
        statistics = [*self.keys, self.event_time, "position.partition", "position.ledger_id", "position.entry_id"]
        return Table(
            name=self.gold_table,
            columns=f"{self.types}, {joined}, position {POSITION}, {self.day} DATE",
            partition_by=(self.day,),
            properties={"delta.dataSkippingStatsColumns": ",".join(statistics), "delta.enableChangeDataFeed": "true"},
        )

    @property
    def waiting(self) -> Table:
        """Facts whose state is not there yet. `missing_entity` and `missing_key` say for what they wait.

        `missing_merged` are the merged keys by which they came to that key: if a merge is undone, they are tried again.
        """
        return Table(
            name=f"quarantine.waiting_{self.topic.name}",
            columns=f"""
                {self.types}, position {POSITION}, {self.day} DATE,
                reason STRING, missing_entity STRING, missing_key STRING, missing_merged ARRAY<STRING>,
                attempts INT, waiting_since TIMESTAMP
            """,
        )

    @property
    def duplicates(self) -> Table:
        """Messages that repeat a fact, and the message they repeat."""
        return Table(
            name=f"quarantine.duplicate_{self.topic.name}",
            columns=f"{self.types}, position {POSITION}, duplicate_of {POSITION}, found_at TIMESTAMP",
        )

    @property
    def discarded(self) -> Table:
        """Facts that waited until somebody gave them up; `quarantine.actions` says who, when and why."""
        return Table(name=f"quarantine.discarded_{self.topic.name}", columns=self.waiting.columns)


def awaited_keys() -> Column:
    """Over a waiting fact's columns: the keys for which it waits, the merged ones first."""
    return F.array_append(F.coalesce("missing_merged", F.array()), F.col("missing_key"))


ACTIONS = Table(
    name="quarantine.actions",
    columns=f"""
        action STRING, topic STRING, position {POSITION},
        requested_at TIMESTAMP, requested_by STRING, note STRING
    """,
    properties={"delta.appendOnly": "true"},
)
"""What people asked to be done with messages: `release` or `discard` waiting facts, `retry` malformed ones."""

BACKFILLS = Table(
    name="gold.backfills",
    columns="""
        request STRING, event STRING, topic STRING, since DATE, until DATE, entity STRING, key STRING,
        unchanged BIGINT, changed BIGINT, added BIGINT, removed BIGINT, waiting BIGINT,
        at TIMESTAMP, requested_by STRING, note STRING
    """,
    properties={"delta.appendOnly": "true"},
)
"""What was asked to be judged anew, and what came of it: the event `done` with the difference, or `failed`; and `tried`
for a try that ended early, which another follows."""
