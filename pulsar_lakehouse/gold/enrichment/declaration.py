"""Declare how a topic of facts becomes a gold table: its columns, its lookups, and the tables where facts can be."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.checks import Check, Mode, of_mode, refuse_wrong
from pulsar_lakehouse.contracts.columns import COLUMNS, Columns, refuse_wrong_pii
from pulsar_lakehouse.contracts.decoding import Decoding
from pulsar_lakehouse.contracts.keys import key_text
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.topics import ROWS, Topic
from pulsar_lakehouse.contracts.types import type_name
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.declared_sql import merged_key
from pulsar_lakehouse.spark.functions import fingerprints
from pulsar_lakehouse.tables.declared import POSITION, Table, made_from, sql_type


@checked
@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A join with an entity.

    Raises ConfigurationError for an `on` that has not as many columns as the entity's key, for an `as_of` join with an
    entity that keeps no history or whose source is a service without `occurred_at`, for `merged_into` with an `as_of`
    join, with a key of several columns, or with a service that is not required, and for `max_merges` below 1.
    """

    entity: Entity
    """The entity whose state is joined. Example: `entity=STORES`"""
    on: str | tuple[str, ...]
    """The column that holds the entity's key, or a column for each of its key, in the same order. It is a column of the
    fact, or one of a row that an earlier lookup finds: `account.customer_id`, where `account` is that lookup's name. If
    that row can't be used, the key is not known, and nothing is looked up.
    Example: `on="store_id"`"""
    name: str = ""
    """The struct in gold that has the entity's row. Default: the entity's name. Several lookups of one entity need
    different names. Example: `name="store"`"""
    join: Literal["latest", "as_of"] = "latest"
    """`latest` takes the state at the time the fact is processed. If it turns out later that the state was deleted
    before the fact, the fact leaves gold. A fact in gold keeps a row that has the key of a later lookup, and so that
    key, as long as all its state is there. `as_of` takes the state at the time of the fact, from the entity's history.
    A late message of the entity corrects the facts that were joined before it arrived. Example: `join="as_of"`"""
    required: bool = True
    """Whether a fact waits until its state is there. If not, it goes to gold with NULL in place of the state, and is
    corrected, within `correction_days`, when the state comes, is deleted or is there again. State that is looked up
    through a row that is not required can't be required. A fact whose own column of `on` is NULL names no row: it waits
    for none, and its state is NULL in either case. Example: `required=False`"""
    merged_into: str | None = None
    """SQL over the entity's columns: the key that this row was merged into, or NULL. The join follows merges to the
    survivor, and the column `<name>_merged` holds the keys on the way. A merge that arrives later, or is undone,
    corrects the facts too. A row on which this SQL fails counts as not merged: it is already in silver, so it can't be
    rejected. If the SQL can fail, make it a column of the entity: there, a failure rejects the message.
    Example: `merged_into="parent_id"`"""
    max_merges: int = 100
    """The most merges to follow. A fact whose key has more merges to its survivor waits until there are fewer.
    Example: `max_merges=10`"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.entity.name)
        keys = ", ".join(self.entity.keys)
        if len(self.paths) != len(self.entity.keys):
            raise ConfigurationError(
                f"lookup {self.name}: on {', '.join(self.paths)}: must be a column for each of the key of "
                f"{self.entity.name}: {keys}"
            )
        if self.merged_into is not None and len(self.entity.keys) > 1:
            raise ConfigurationError(
                f"lookup {self.name}: follows merges, but the key of {self.entity.name} is {keys}: "
                "remove merged_into, or look up an entity whose key is one column"
            )
        if self.is_as_of and not self.entity.keeps_history:
            raise ConfigurationError(
                f"lookup {self.name}: joins {self.entity.name} as_of a time, which needs a history: "
                'use join="latest", or declare the entity with keeps_history'
            )
        if self.is_as_of and self.merged_into is not None:
            raise ConfigurationError(
                f"lookup {self.name}: joins {self.entity.name} as_of a time, but follows merges, which have no time: "
                'use join="latest", or remove merged_into'
            )
        if isinstance(self.entity.source, Service):
            self._refuse_wrong_service()
        if self.max_merges < 1:
            raise ConfigurationError(f"lookup {self.name}: max_merges is {self.max_merges}: must be 1 or more")

    def _refuse_wrong_service(self) -> None:
        if self.is_as_of and not self.entity.has_own_time:
            raise ConfigurationError(
                f"lookup {self.name}: joins {self.entity.name} as_of a time, but a service answers after the fact: use "
                'join="latest", or declare since when an answer holds with occurred_at'
            )
        if self.merged_into is not None and not self.required:
            raise ConfigurationError(
                f"lookup {self.name}: follows merges, but nobody asks {self.entity.name} for a survivor that no fact "
                "waits for: remove merged_into or required=False"
            )

    def merges_into(self, kind: DataType) -> Column:
        """Over the entity's columns: the value of `merged_into`, cast to the key's type `kind`."""
        assert self.merged_into is not None
        return merged_key(self.merged_into, self.key, kind)

    @property
    def key(self) -> str:
        """The entity's key, if it is one column, as it is where merges are followed."""
        return self.entity.keys[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """The columns of `on`."""
        return (self.on,) if isinstance(self.on, str) else self.on

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Those of the fact itself."""
        return tuple(path for path in self.paths if "." not in path)

    @property
    def through(self) -> tuple[str, ...]:
        """The names of the earlier lookups whose rows have columns of `on`."""
        return tuple(dict.fromkeys(path.split(".")[0] for path in self.paths if "." in path))

    def key_from(self, values: Sequence[Column]) -> Column:
        """The key with these values as one column: several are a struct of the types of the entity's key."""
        if len(values) == 1:
            return values[0]
        keys = zip(self.entity.keys, values, self.entity.key_types, strict=True)
        return F.struct(*(value.try_cast(kind).alias(name) for name, value, kind in keys))

    def text_of(self, key: Column) -> Column:
        """The text of a key that is one column, or a struct: that of its message key."""
        return key_text([key[name] for name in self.entity.keys] if len(self.entity.keys) > 1 else [key])

    @property
    def own_key(self) -> Column:
        """Over gold's columns: the text of the key that the columns of `on` have, before any merge."""
        kinds = zip(self.paths, self.entity.key_types, strict=True)
        return key_text([F.col(path).try_cast(kind) for path, kind in kinds])

    @property
    def merged(self) -> str:
        """The column with the merged keys, the fact's own key first; NULL if that key was not merged."""
        return f"{self.name}_merged"

    @property
    def used_keys(self) -> Column:
        """Over gold's columns: the keys that the join used, as text, the merged ones first and the survivor last."""
        key = key_text([F.col(self.name)[name] for name in self.entity.keys])
        return F.array_append(self.way, key)

    @property
    def way(self) -> Column:
        """The merged keys as text; empty if no key was merged."""
        return F.coalesce(self.merged_keys, F.array())

    @property
    def merged_keys(self) -> Column:
        """The merged keys as text, or NULL."""
        return (F.col(self.merged) if self.merged_into else F.lit(None)).cast("array<string>")

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns that the lookup adds to gold."""
        return (self.name, self.merged) if self.merged_into else (self.name,)

    @property
    def definition(self) -> dict[str, str]:
        """What the columns that it adds to gold are made from, by name."""
        need = "required" if self.required else "not required"
        merges = f", merged into {self.merged_into}, at most {self.max_merges}" if self.merged_into else ""
        join = f"{self.entity.name} on {self.on}, {self.join}, {need}{merges}"
        return {
            f"lookup {self.name}": join,
            **{f"lookup {self.name}: {what}": of for what, of in fingerprints([self.merged_into or ""]).items()},
            **{f"lookup {self.name}: {what}": sql for what, sql in self.entity.definition.items()},
        }

    @property
    def said(self) -> str:
        """How rows are joined, in words."""
        return f"by {' and '.join(self.paths)}, {self.join}"

    @property
    def kind(self) -> str:
        """What messages call it."""
        return "lookup"

    @property
    def is_as_of(self) -> bool:
        return self.join == "as_of"

    @property
    def table(self) -> str:
        return (self.entity.history if self.is_as_of else self.entity.table).name


KEYS = "ARRAY<STRUCT<entity: STRING, key: STRING>>"
MISSING = f"ARRAY<STRUCT<entity: STRING, key: STRING, reason: STRING, merged: ARRAY<STRING>, via: {KEYS}>>"
"""The states that a fact lacks, in the order of the lookups."""

OWN_COLUMNS = (
    *("position", "publish_time", "message", "reason", "missing", "attempts", "waiting_since", "duplicate_of"),
    *("found_at", "changed_entity", "changed_key", "valid_from", "valid_until", "changed_at", "changed_in", "loss"),
    *("is_before", "backfill"),
)
"""Columns that the enrichment adds to facts, so that no others can have these names. Its others begin with `_`."""

FIXED = ("keys", "day", "functions", "where", ROWS)
"""What can't change while gold exists: duplicates were found by these keys, its files are of one day each, and its
facts are of these messages and have the places of these rows."""


@checked
@dataclass(frozen=True, kw_only=True)
class Enrichment:
    """Facts of a topic joined with state.

    Raises ConfigurationError for a lookup that is `on` no column of the facts or of an earlier lookup, or that is
    required and gets its key from one that is not; for a column of gold whose name is taken, by another or by the
    enrichment itself; and for a check that quarantines by the state.
    """

    topic: Topic
    """The topic of the facts. The gold table is `gold.enriched_<topic>`.
    Example: `topic=Topic("sales", "id BIGINT NOT NULL, storeId BIGINT, soldAt TIMESTAMP_MILLIS")`"""
    columns: Columns = COLUMNS
    """By name, SQL over the topic's fields, or a text such as `"id, city, nullif(rank, -1) AS rank"`, in which a
    bare name stands for itself. The types of the columns are those of their SQL.
    Example: `columns="id, storeId AS store_id, soldAt AS sold_at"`"""
    keys: tuple[str, ...]
    """The columns that identify a fact. Example: `keys=("id",)`"""
    event_time: str
    """The column with the time of the fact. State that was deleted at or before that time can't be used.
    Example: `event_time="sold_at"`"""
    day: str
    """The partition column to add: the date of `event_time`. Example: `day="sale_date"`"""
    lookups: tuple[Lookup, ...]
    """The joins with entities, perhaps several with one entity under different names. Without any, facts are decoded,
    checked and deduplicated, and go to gold. Example: `lookups=(Lookup(entity=STORES, on="store_id"),)`"""
    matches: tuple[Match, ...] = ()
    """The interval joins, of entities or of other facts, each under a name of its own.
    Example: `matches=(Match(entity=STORES, on="store_id", by="id", time="opened_at", within="1 hour"),)`"""
    pii: str | tuple[str, ...] = ()
    """The fact's own columns with personal data, which are masked as those of an entity are. Not of the keys, the
    `event_time` or `on`. Example: `pii=("email",)`"""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """By name, what must be TRUE of each row of gold, over its columns, and what happens if it is not:
    `{"price_is_positive": quarantine("price > 0")}`, or `warn(...)` or `fail(...)`. A check that quarantines is
    evaluated before the fact is joined, so it can't use the state.
    Example: `checks={"price_is_an_amount": quarantine("price >= 0")}`"""
    dedup_days: int = 7
    """Days within which a fact with the same keys is a duplicate. Beyond them, it is a separate fact.
    Example: `dedup_days=1`"""
    retry_days: int = 30
    """Days for which a waiting fact is retried when state changes. After that, it is retried only if it is released.
    Example: `retry_days=7`"""
    correction_days: int = 365
    """The most days between a fact and the publish time of late state that can still correct it in gold.
    Example: `correction_days=30`"""
    publish_to: str | None = None
    """The Pulsar topic that `lakehouse publish` keeps equal to the gold table.
    Example: `publish_to="enriched_sales"`"""

    def __post_init__(self) -> None:
        for place, lookup in enumerate(self.lookups):
            earlier = {each.name: each for each in self.lookups[:place]}
            for wrong in _wrong_keys(lookup, self.columns, earlier):
                raise ConfigurationError(f"{self.topic.name}: lookup {lookup.name} is {wrong}")
        for match in self.matches:
            for path in match.paths:
                if path not in self.columns:
                    known = ", ".join(self.columns)
                    raise ConfigurationError(
                        f"{self.topic.name}: match {match.name} is on {path}, which is no column; there are {known}"
                    )
        of_others = {
            **{path: join.kind for join in self.joins for path in join.paths},
            self.event_time: "event_time",
            **dict.fromkeys(self.keys, "keys"),
        }
        refuse_wrong_pii(self.topic.name, self.personal, self.columns, of_others)
        own = [(name, f"{self.topic.name} itself") for name in self.columns]
        added = [(name, f"lookup {lookup.name}") for lookup in self.lookups for name in lookup.adds]
        added += [(match.name, f"match {match.name}") for match in self.matches]
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
    def personal(self) -> tuple[str, ...]:
        """The columns of `pii`."""
        return (self.pii,) if isinstance(self.pii, str) else self.pii

    @property
    def decoding(self) -> Decoding:
        return Decoding(topic=self.topic, columns=self.columns)

    @property
    def definition(self) -> dict[str, str]:
        """What the rows of gold are made from, by name. `FIXED` are the names that only a new table can change."""
        checks = of_mode(self.checks, Mode.QUARANTINE)
        fixed = fingerprints([self.topic.rows])
        return {
            "keys": ", ".join(self.keys),
            "day": self.day,
            "event_time": self.event_time,
            **({"functions": ", ".join(f"{name} {each}" for name, each in fixed.items())} if fixed else {}),
            **self.topic.definition,
            **{f"field {each.name}": type_name(each.dataType) for each in self.topic.fields},
            **{f"column {name}": sql for name, sql in self.columns.items()},
            **{f"check {name}": check.sql for name, check in checks.items()},
            **fingerprints([*self.columns.values(), *(check.sql for check in checks.values())]),
            **{what: sql for join in self.joins for what, sql in join.definition.items()},
        }

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
        """The tables that the joins read, each once."""
        return tuple(dict.fromkeys(join.table for join in self.joins))

    @property
    def joins(self) -> tuple[Lookup | Match, ...]:
        """The lookups and the matches, in the order of their columns in gold."""
        return (*self.lookups, *self.matches)

    @property
    def feeds(self) -> tuple[Lookup, ...]:
        """The lookups whose changes concern the facts, without those that see the same changes as an earlier one."""
        feeds: dict[tuple[str, str | None], Lookup] = {}
        for lookup in self.lookups:
            declared = lookup.table, lookup.merged_into
            if declared not in feeds or not lookup.required:  # which sees what the others see, and keys that came
                feeds[declared] = lookup
        return tuple(feeds.values())

    @property
    def leading(self) -> frozenset[str]:
        """The names of the lookups whose rows have keys of later ones."""
        return frozenset(name for lookup in self.lookups for name in lookup.through)

    @property
    def states(self) -> tuple[str, ...]:
        """The columns that the joins add to gold."""
        return tuple(name for join in self.joins for name in join.adds)

    @property
    def gold_columns(self) -> tuple[str, ...]:
        return (*self.columns, *self.states, "position", self.day)

    def gold(self, states: Mapping[str, StructType]) -> Table:
        """The table of complete facts. `states` are the columns of each join's entity, by the name of the join."""
        added: dict[str, str] = {}
        for lookup in self.lookups:
            row = states[lookup.name]
            added[lookup.name] = sql_type(row)
            if lookup.merged_into is not None:
                added[lookup.merged] = f"array<{sql_type(row[lookup.key].dataType)}>"
        for match in self.matches:
            kind = sql_type(states[match.name])
            added[match.name] = kind if match.each == "first" else f"array<{kind}>"
        joined = (f"`{name}` {kind}" for name, kind in added.items())
        identity = dict.fromkeys((*self.keys, self.event_time))
        statistics = [*identity, "position.partition", "position.ledger_id", "position.entry_id"]
        properties = {"delta.dataSkippingStatsColumns": ",".join(statistics), "delta.enableChangeDataFeed": "true"}
        return Table(
            name=self.gold_table,
            columns=", ".join((self.decoding.ddl, *joined, f"position {self.topic.position}", f"{self.day} DATE")),
            partition_by=(self.day,),
            properties={**properties, **made_from(self.definition)},
        )

    @property
    def waiting(self) -> Table:
        """Facts whose state or partner is not there. `reason` says in words what they lack, and `missing` which keys.

        `merged` are the merged keys that led to a missing key, and `via` the keys of earlier lookups that did. If one
        of all these keys changes, the fact is retried.
        """
        return Table(
            name=f"quarantine.waiting_{self.topic.name}",
            columns=lambda: (
                f"""
                {self.decoding.ddl}, position {self.topic.position}, {self.day} DATE,
                reason STRING, missing {MISSING}, attempts INT, waiting_since TIMESTAMP
            """
            ),
        )

    @property
    def duplicates(self) -> Table:
        """Messages that repeat a fact, with the position of the first one in `duplicate_of`."""
        return Table(
            name=f"quarantine.duplicate_{self.topic.name}",
            columns=lambda: (
                f"{self.decoding.ddl}, position {self.topic.position}, duplicate_of {self.topic.position}, "
                "found_at TIMESTAMP"
            ),
        )

    @property
    def discarded(self) -> Table:
        """Waiting facts that somebody discarded. `quarantine.actions` says who, when and why."""
        return Table(name=f"quarantine.discarded_{self.topic.name}", columns=self.waiting.columns)


def _wrong_keys(lookup: Lookup, columns: Mapping[str, str], earlier: Mapping[str, Lookup]) -> Iterator[str]:
    """What is wrong with the columns that a lookup is on: of the fact, or of the rows of `earlier` lookups."""
    for path in lookup.paths:
        name, _, column = path.partition(".")
        if not column:
            if path not in columns:
                yield f"on {path}, which is no column; there are {', '.join(columns)}"
        elif name not in earlier:
            yield f"on {path}, but {name} is no earlier lookup; there are {', '.join(earlier) or 'none'}"
        elif column not in (known := earlier[name].entity.columns):
            yield f"on {path}, which is no column of {earlier[name].entity.name}; there are {', '.join(known)}"
        elif column in earlier[name].entity.personal:
            yield f"on {path}, which has personal data: it can't be masked, as it says what facts wait for"
        elif lookup.required and not earlier[name].required:
            yield f"required, but on {path}, and {name} is not: make both required, or neither"


def keys_of(entity: Column, merged: Column, key: Column) -> Column:
    """The key and the merged keys that led to it, all as text, each with the name of the entity."""
    keys = F.array_append(F.coalesce(merged, F.array()), key)
    return F.transform(keys, lambda each: F.struct(entity.alias("entity"), each.alias("key")))


def awaited_keys(missing: Column) -> Column:
    """`entity` and `key` of a state that a fact waits for, and of those that led there: an array."""
    alone = F.array(F.struct(missing["entity"].alias("entity"), missing["key"].alias("key")))
    all_keys = F.concat(
        F.coalesce(missing["via"], F.array().cast(KEYS)), keys_of(missing["entity"], missing["merged"], missing["key"])
    )
    # To nearly all states nothing has led; for the others, Spark calls a function for each row.
    is_led = missing["via"].isNotNull() | missing["merged"].isNotNull()
    return F.when(is_led, all_keys).otherwise(alone)


ACTIONS = Table(
    name="quarantine.actions",
    columns=f"""
        action STRING, topic STRING, position {POSITION},
        requested_at TIMESTAMP, requested_by STRING, note STRING, row INT
    """,
    properties={"delta.appendOnly": "true"},
)
"""What people requested: `release` or `discard` a waiting fact, or `retry` a malformed message. `expire` says that
there are waiting facts whose time to find a partner is over. `row` is as in `quarantine.malformed`."""

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
