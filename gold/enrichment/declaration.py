"""Declare how a topic of facts becomes a gold table: its columns, its lookups, and the tables where facts can be."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from lakehouse.contracts.arguments import checked
from lakehouse.contracts.checks import Check, Mode, of_mode, refuse_wrong
from lakehouse.contracts.columns import COLUMNS, Columns
from lakehouse.contracts.decoding import Decoding
from lakehouse.contracts.topics import Topic
from lakehouse.delta.tables import POSITION, Table
from lakehouse.errors import ConfigurationError
from lakehouse.spark.declared_sql import try_eval
from silver.entity import Entity


@checked
@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A join with an entity.

    Raises ConfigurationError for an entity whose key is several columns, for an `as_of` join with an entity that keeps
    no history of whole updates, for `merged_into` with an `as_of` join, and for `max_merges` below 1.
    """

    entity: Entity
    """The entity whose state is joined."""
    on: str
    """The fact's column that holds the entity's key."""
    name: str = ""
    """The struct in gold that has the entity's row. Default: the entity's name. Several lookups of one entity need
    different names."""
    join: Literal["latest", "as_of"] = "latest"
    """`latest` takes the state at the time the fact is processed. If it turns out later that the state was deleted
    before the fact, the fact leaves gold. `as_of` takes the state at the time of the fact, from the entity's history. A
    late message of the entity corrects the facts that were joined before it arrived."""
    required: bool = True
    """Whether a fact waits until its state is there. If not, it goes to gold with NULL in place of the state, and is
    corrected, within `correction_days`, when the state comes, is deleted or is there again."""
    merged_into: str | None = None
    """SQL over the entity's columns: the key that this row was merged into, or NULL. The join follows merges to the
    survivor, and the column `<name>_merged` holds the keys on the way. A merge that arrives later, or is undone,
    corrects the facts too. A row on which this SQL fails counts as not merged: it is already in silver, so it can't be
    rejected. If the SQL can fail, make it a column of the entity: there, a failure rejects the message."""
    max_merges: int = 100
    """The most merges to follow. A fact whose key has more merges to its survivor waits until there are fewer."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.entity.name)
        if len(self.entity.keys) > 1:
            raise ConfigurationError(
                f"lookup {self.name}: the key of {self.entity.name} is {', '.join(self.entity.keys)}: "
                "must be an entity whose key is one column"
            )
        if self.is_as_of and (self.entity.ignore_null_updates or not self.entity.keeps_history):
            raise ConfigurationError(
                f"lookup {self.name}: joins {self.entity.name} as_of a time, which needs a history of whole updates: "
                'use join="latest", or declare the entity with keeps_history and without ignore_null_updates'
            )
        if self.is_as_of and self.merged_into is not None:
            raise ConfigurationError(
                f"lookup {self.name}: joins {self.entity.name} as_of a time, but follows merges, which have no time: "
                'use join="latest", or remove merged_into'
            )
        if self.max_merges < 1:
            raise ConfigurationError(f"lookup {self.name}: max_merges is {self.max_merges}: must be 1 or more")

    def merges_into(self, kind: DataType) -> Column:
        """Over the entity's columns: the value of `merged_into`, cast to the key's type `kind`."""
        assert self.merged_into is not None
        return F.when(F.col(self.key).isNotNull(), try_eval(F.expr(self.merged_into).cast(kind)))

    @property
    def key(self) -> str:
        """The entity's key."""
        return self.entity.keys[0]

    @property
    def merged(self) -> str:
        """The column with the merged keys, the fact's own key first; NULL if that key was not merged."""
        return f"{self.name}_merged"

    @property
    def used_keys(self) -> Column:
        """Over gold's columns: the keys that the join used, as text, the merged ones first and the survivor last."""
        merged = F.col(self.merged) if self.merged_into else F.lit(None)
        return F.array_append(F.coalesce(merged, F.array()), F.col(self.name)[self.key]).cast("array<string>")

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns that the lookup adds to gold."""
        return (self.name, self.merged) if self.merged_into else (self.name,)

    @property
    def is_as_of(self) -> bool:
        return self.join == "as_of"

    @property
    def table(self) -> str:
        return (self.entity.history if self.is_as_of else self.entity.table).name


MISSING = "ARRAY<STRUCT<entity: STRING, key: STRING, reason: STRING, merged: ARRAY<STRING>>>"
"""The states that a fact lacks, in the order of the lookups."""

OWN_COLUMNS = (
    *("position", "publish_time", "message", "reason", "missing", "attempts"),
    *("waiting_since", "duplicate_of", "found_at", "placed", "of_day", "of_days", "firsts", "original", "is_placed"),
    *("current", "is_waiting", "changed_entity", "changed_key"),
    *("valid_from", "valid_until", "changed_at", "loss", "is_before", "backfill"),
)
"""Names of columns that the enrichment itself adds to facts. Beside these, its names begin with `_`."""


@checked
@dataclass(frozen=True, kw_only=True)
class Enrichment:
    """Facts of a topic joined with state.

    Raises ConfigurationError if a lookup is `on` something that is no column, if two columns of gold have the same
    name, or one has the name of a column of the enrichment's own, and for a check that quarantines by the state.
    """

    topic: Topic
    """The topic of the facts. The gold table is `gold.enriched_<topic>`."""
    columns: Columns = COLUMNS
    """By name, SQL over the topic's fields, or a text such as `"id, city, nullif(closedAt, -1) AS closed"`, in which a
    bare name stands for itself. The types of the columns are those of their SQL."""
    keys: tuple[str, ...]
    """The columns that identify a fact."""
    event_time: str
    """The column with the time of the fact. State that was deleted at or before that time can't be used."""
    day: str
    """The partition column to add: the date of `event_time`."""
    lookups: tuple[Lookup, ...]
    """The joins with entities, perhaps several with one entity under different names. Without any, facts are decoded,
    checked and deduplicated, and go to gold."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """By name, what must be TRUE of each row of gold, over its columns, and what happens if it is not:
    `{"price_is_positive": quarantine("price > 0")}`, or `warn(...)` or `fail(...)`. A check that quarantines is
    evaluated before the fact is joined, so it can't use the state."""
    dedup_days: int = 7
    """Days within which a fact with the same keys is a duplicate. Beyond them, it is a separate fact."""
    retry_days: int = 30
    """Days for which a waiting fact is retried when state changes. After that, it is retried only if it is released."""
    correction_days: int = 365
    """The most days between a fact and the publish time of late state that can still correct it in gold."""
    publish_to: str | None = None
    """The Pulsar topic that `lakehouse publish` keeps equal to the gold table."""

    def __post_init__(self) -> None:
        for lookup in self.lookups:
            if lookup.on not in self.columns:
                known = ", ".join(self.columns)
                raise ConfigurationError(
                    f"{self.topic.name}: lookup {lookup.name} is on {lookup.on}, which is no column; there are {known}"
                )
        own = [(name, f"{self.topic.name} itself") for name in self.columns]
        added = [(name, f"lookup {lookup.name}") for lookup in self.lookups for name in lookup.adds]
        self._check_names([*own, (self.day, "the day"), *added])
        refuse_wrong(self.checks, within=self.topic.name)
        for name, check in of_mode(self.checks, Mode.QUARANTINE).items():
            if joined := sorted(check.columns & {state.lower() for state in self.states}):
                raise ConfigurationError(
                    f"{self.topic.name}: check {name}: {check.sql}: quarantine comes before {joined[0]} is joined: use "
                    "warn or fail, or columns of the fact alone"
                )

    def _check_names(self, named: Iterable[tuple[str, str]]) -> None:
        taken = dict.fromkeys(OWN_COLUMNS, "the enrichment")
        for name, owner in named:
            other = "the enrichment" if name.startswith("_") else taken.get(name.lower())
            if other:
                raise ConfigurationError(
                    f"{self.topic.name}: a column of {owner} can't be named {name}, which is a column of {other}"
                )
            taken[name.lower()] = owner

    @property
    def decoding(self) -> Decoding:
        return Decoding(topic=self.topic, columns=self.columns)

    @property
    def gold_table(self) -> str:
        return f"gold.enriched_{self.topic.name}"

    @property
    def shadow(self) -> str:
        """The table with the rows of gold that the last dry run of a backfill would change, before and after."""
        return f"gold.shadow_{self.topic.name}"

    @property
    def places(self) -> tuple[str, ...]:
        """The tables for valid facts. Each valid fact is in exactly one of them."""
        return self.gold_table, self.waiting.name, self.duplicates.name, self.discarded.name

    @property
    def state_tables(self) -> tuple[str, ...]:
        """The tables that the lookups read, each once."""
        return tuple(dict.fromkeys(lookup.table for lookup in self.lookups))

    @property
    def feeds(self) -> tuple[Lookup, ...]:
        """The lookups whose changes concern the facts, without those that see the same changes as an earlier one."""
        feeds: dict[tuple[str, str | None, bool], Lookup] = {}
        for lookup in self.lookups:
            feeds.setdefault((lookup.table, lookup.merged_into, lookup.required), lookup)
        return tuple(feeds.values())

    @property
    def states(self) -> tuple[str, ...]:
        """The columns that the lookups add to gold."""
        return tuple(name for lookup in self.lookups for name in lookup.adds)

    @property
    def gold_columns(self) -> tuple[str, ...]:
        return (*self.columns, *self.states, "position", self.day)

    def gold(self, states: Mapping[str, StructType]) -> Table:
        """The table of complete facts. `states` are the columns of each lookup's entity, by the name of the lookup."""
        added: dict[str, str] = {}
        for lookup in self.lookups:
            row = states[lookup.name]
            added[lookup.name] = row.simpleString()
            if lookup.merged_into is not None:
                added[lookup.merged] = f"array<{row[lookup.key].dataType.simpleString()}>"
        joined = (f"`{name}` {kind}" for name, kind in added.items())
        identity = dict.fromkeys((*self.keys, self.event_time))
        statistics = [*identity, "position.partition", "position.ledger_id", "position.entry_id"]
        return Table(
            name=self.gold_table,
            columns=", ".join((self.decoding.ddl, *joined, f"position {POSITION}", f"{self.day} DATE")),
            partition_by=(self.day,),
            properties={"delta.dataSkippingStatsColumns": ",".join(statistics), "delta.enableChangeDataFeed": "true"},
        )

    @property
    def waiting(self) -> Table:
        """Facts whose state is not there yet. `reason` says in words what they lack, and `missing` which keys.

        `merged` are the merged keys that led to a missing key. If one of all these keys changes, the fact is retried.
        """
        return Table(
            name=f"quarantine.waiting_{self.topic.name}",
            columns=lambda: (
                f"""
                {self.decoding.ddl}, position {POSITION}, {self.day} DATE,
                reason STRING, missing {MISSING}, attempts INT, waiting_since TIMESTAMP
            """
            ),
        )

    @property
    def duplicates(self) -> Table:
        """Messages that repeat a fact, with the position of the first one in `duplicate_of`."""
        return Table(
            name=f"quarantine.duplicate_{self.topic.name}",
            columns=lambda: f"{self.decoding.ddl}, position {POSITION}, duplicate_of {POSITION}, found_at TIMESTAMP",
        )

    @property
    def discarded(self) -> Table:
        """Waiting facts that somebody discarded. `quarantine.actions` says who, when and why."""
        return Table(name=f"quarantine.discarded_{self.topic.name}", columns=self.waiting.columns)


def awaited_keys() -> Column:
    """Over the columns of waiting facts: `entity` and `key` of each state that a fact waits for, also merged keys."""

    def of_state(state: Column) -> Column:
        keys = F.array_append(F.coalesce(state["merged"], F.array()), state["key"])
        return F.transform(keys, lambda key: F.struct(state["entity"].alias("entity"), key.alias("key")))

    return F.flatten(F.transform("missing", of_state))


ACTIONS = Table(
    name="quarantine.actions",
    columns=f"""
        action STRING, topic STRING, position {POSITION},
        requested_at TIMESTAMP, requested_by STRING, note STRING
    """,
    properties={"delta.appendOnly": "true"},
)
"""What people requested: `release` or `discard` a waiting fact, or `retry` a malformed message."""

BACKFILLS = Table(
    name="gold.backfills",
    columns="""
        request STRING, event STRING, topic STRING, since DATE, until DATE, entity STRING, key STRING,
        unchanged BIGINT, changed BIGINT, added BIGINT, removed BIGINT, waiting BIGINT,
        at TIMESTAMP, requested_by STRING, note STRING
    """,
    properties={"delta.appendOnly": "true"},
)
"""Requests for backfills, and their results. The `event` is `requested`, `tried` (an attempt failed, and a retry
follows), `failed`, or `done` with the difference."""
