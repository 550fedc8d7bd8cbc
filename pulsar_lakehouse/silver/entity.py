"""Declare how a changelog topic becomes a table of latest state."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.checks import Check, Mode, of_mode, refuse_wrong
from pulsar_lakehouse.contracts.columns import COLUMNS, Columns, refuse_wrong_pii
from pulsar_lakehouse.contracts.decoding import Decoding
from pulsar_lakehouse.contracts.envelopes import path_of
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.sources import KEY_TYPES, DeltaTable, Files, Postgres
from pulsar_lakehouse.contracts.topics import ROWS, Topic
from pulsar_lakehouse.contracts.types import type_name
from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError
from pulsar_lakehouse.spark.functions import fingerprints
from pulsar_lakehouse.tables.declared import Table, ddl_of, made_from

SEQUENCE = "event_time: TIMESTAMP, publish_time: TIMESTAMP, ledger_id: BIGINT, entry_id: BIGINT, batch_index: INT"
"""The total order of messages: by event time, then publish time, then position in the topic. Ledger ids are unique
across partitions, so no two messages are equal. The event time is `occurred_at`, if that is declared and not NULL. A
message without event time uses its publish time. Where a message can have many rows, the struct ends with the place
`row` in its array: the last one counts. With `sequence_by`, the struct begins with the columns that are
declared there, as the struct `by`."""
UNAVAILABLE = "_unavailable"
"""The column of decoded messages that names the fields which a message leaves out, if some of its topic may."""
OCCURRED_AT = "_occurred_at"
"""The column of decoded messages that has the value of `occurred_at`, if that is declared."""

SNAPSHOT = "snapshot"
"""The number of a source's snapshot, which orders versions before their times do."""

RESERVED = (
    *("deleted_at", "sequence", "valid_from", "valid_until", "given", "message", "reason", "_since", "_stored"),
    *(
        "_latest",
        "_latest_row",
        "_is_given",
        "_is_changed",
        "_is_last",
        "_is_newer",
        "_has_new_values",
        "_life",
        "_said",
    ),
    OCCURRED_AT,
    UNAVAILABLE,
)
"""Columns that an entity can't declare, because its tables or the merge have columns of these names."""
LONG = (StringType, BinaryType, ArrayType, MapType)
"""The types of fields that a message may leave out, as their values can be long: Postgres' TOAST."""
IN_KEYS = (StringType, IntegralType, BooleanType, DateType)
"""The types whose values have one text in a key of several columns."""
AS_IN_KEYS = "a text, an integer, a boolean or a date"
TIME = "must be a TIMESTAMP, such as a field of type TIMESTAMP_MILLIS"
VALIDITY = "valid_from TIMESTAMP, valid_until TIMESTAMP"
FIXED = ("key", "sequence_by", "occurred_at", "functions", "where", ROWS)
"""What tables that exist keep: an older row would not meet a newer one of its key, or not in their order."""


class Landed:
    """What lands for an entity: its topic, or what the messages of its source decode as."""

    accepts = Topic

    def __get__(self, entity: "Entity | None", owner: type["Entity"]) -> Topic:
        if entity is None:
            return None  # type: ignore[return-value]  # a dataclass finds the default
        if topic := entity.__dict__["topic"]:
            return topic  # type: ignore[no-any-return]
        if source := entity.__dict__["source"]:
            return source.topic  # type: ignore[no-any-return]
        raise ConfigurationError("Entity needs a topic or a source")

    def __set__(self, entity: "Entity", given: Topic | None) -> None:
        entity.__dict__["topic"] = given


@checked
@dataclass(frozen=True, kw_only=True)
class Entity:
    """A keyed changelog, or a source that is read again and again, and its silver table.

    Raises ConfigurationError for `ignore_null_updates` without `keeps_history`, for a `key`, `sequence_by` or
    `ignore_null_updates` that is no column, for a column with the name of one that is added, and for checks that
    quarantine with `ignore_null_updates` or without `keeps_history`.
    """

    topic: Landed = Landed()
    """The changelog. Its name is the entity's.
    Example: `topic=Topic("stores", "id BIGINT NOT NULL, city STRING", changelog=True)`"""
    source: Postgres | Files | DeltaTable | Service | None = None
    """What has the state if no topic has: snapshots of it are read, and their differences land as changes. Or a
    function with `@service`, which is asked for the keys that facts wait for, and whose answers land. Then the
    columns of the key are fields, and `sequence_by` and `ignore_null_updates` are left out.
    Example: `source=Postgres("regions", "id BIGINT NOT NULL, name STRING", every="1 hour")`"""
    key: str | tuple[str, ...]
    """The column that identifies a row, or several that do together. Each must have a value, and they must equal the
    message key if the message has one. A tombstone has only the message key to say which key it deletes. The message
    key of several columns is a JSON array without spaces, such as `["A1","EUR"]` or `[7,"EUR"]`. Where a message can
    have many rows, its message key does not count. Tables that exist
    keep their key, and the SQL of these columns: to change it, `lakehouse rebuild` them.
    Example: `key=("id", "city")`"""
    columns: Columns = COLUMNS
    """By name, SQL over the topic's fields and the message (`message.topic`, `message.properties`,
    `message.position`, `message.event_time`), or a text such as `"id, city, nullif(rank, -1) AS rank"`, in which
    a bare name stands for itself. The types of the columns are those of their SQL.
    Example: `columns="id, upper(city) AS city"`"""
    sequence_by: str | tuple[str, ...] = ()
    """Columns that order the messages of a key before their event time does, such as a version; NULL comes first.

    A tombstone has no fields: let the SQL of such a column use `message.properties`, or a tombstone is older than all
    messages with a value. With a history, the state at a time is the last version in this order of those whose event
    time is not after it. Tables that exist keep their order, and the SQL of these columns: to change it,
    `lakehouse rebuild` them. Example: `sequence_by="version"`"""
    occurred_at: str = "NULL"
    """SQL over the same: the time of the change, from which its version is valid. Where it is NULL, and on a tombstone
    that has none, it is the message's event time, or else its publish time. Tables that exist keep their time: to
    change it, `lakehouse rebuild` them. Example: `occurred_at="changedAt"`"""
    deleted_at: str = "NULL"
    """SQL over the same: the time from which the key is deleted, or NULL.
    Example: `deleted_at="closedAt"`"""
    keeps_history: bool = True
    """Whether there is a table of all versions, for joins as of a time. Example: `keeps_history=False`"""
    ignore_null_updates: bool | tuple[str, ...] = False
    """Whether messages are partial updates: a column that is NULL keeps its previous value, unless the key was deleted
    since. Of a struct, each field does. If only some columns do, name them: NULL is a value of the others. Needs
    `keeps_history`. Example: `ignore_null_updates=("city",)`"""
    keep_deleted: int = 90
    """Days after which a deleted key may be purged. Without the history, an older message that arrives after that
    brings the key back. Example: `keep_deleted=30`"""
    pii: str | tuple[str, ...] = ()
    """Columns with personal data. They are masked for whoever has no grant to see them, in all tables, also in gold and
    in tables declared in SQL, and so are the messages as they came. Not of the key or `sequence_by`, which tell rows
    apart. Example: `pii=("city",)`"""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """By name, what must be TRUE of each row whose key is not deleted, over the columns, and what happens if it is not:
    `{"price_is_positive": warn("price > 0")}`, or `quarantine(...)` or `fail(...)`. A message that goes to quarantine
    leaves its key with the state that it had. Example: `checks={"city_is_there": warn("length(city) > 0")}`"""

    @property
    def name(self) -> str:
        return self.topic.name

    def is_expired(self, deleted_at: Column, published: Column) -> Column:
        """Whether the delete of a key took effect and was published more than `keep_deleted` days ago."""
        since = F.current_timestamp() - F.make_dt_interval(F.lit(self.keep_deleted))
        return F.coalesce(deleted_at < since, F.lit(False)) & (published < since)

    @property
    def ignoring(self) -> tuple[str, ...]:
        """The columns of `ignore_null_updates`."""
        if isinstance(self.ignore_null_updates, tuple):
            return self.ignore_null_updates
        return self.values if self.ignore_null_updates else ()

    @property
    def personal(self) -> tuple[str, ...]:
        """The columns of `pii`."""
        return (self.pii,) if isinstance(self.pii, str) else self.pii

    @property
    def is_partial(self) -> bool:
        """Whether a message may leave out values, which then are those of earlier messages."""
        return bool(self.ignoring or self.may_lack)

    @property
    def may_lack(self) -> Mapping[str, tuple[str, ...]]:
        """By column, the fields in its SQL that a message may leave out because the database did not log them."""
        if not self.topic.envelope:
            return {}
        fields = [each.name for each in self.topic.fields if isinstance(each.dataType, LONG) and not path_of(each.name)]
        words = {name: set(re.findall(r"\w+", self.columns[name].lower())) for name in self.values}
        used = {name: tuple(each for each in fields if each.lower() in words[name]) for name in self.values}
        return {name: each for name, each in used.items() if each}

    @property
    def decoding(self) -> Decoding:
        """The columns of its tables that are made from a message, and OCCURRED_AT."""
        times = {"deleted_at": f"CAST({self.deleted_at} AS TIMESTAMP)"}
        if self.has_own_time:
            times[OCCURRED_AT] = self.occurred_at
        return Decoding(topic=self.topic, columns={**self.columns, **times}, keys=self.keys)

    @property
    def has_own_time(self) -> bool:
        """Whether `occurred_at` is declared."""
        return self.occurred_at != "NULL"

    @property
    def checks_of_rows(self) -> Mapping[str, Check]:
        """The checks as they hold of all rows: those of deleted keys pass, because a tombstone leaves only the key."""
        if self.expires:
            return self.checks
        return {
            name: replace(check, sql=f"deleted_at IS NOT NULL OR ({check.sql})") for name, check in self.checks.items()
        }

    @property
    def expires(self) -> bool:
        """Whether each row is the answer of a service that holds for some days, and then counts as deleted."""
        return isinstance(self.source, Service) and self.source.cache_days > 0

    @property
    def ordered_by(self) -> tuple[str, ...]:
        """The columns of `sequence_by`."""
        return (self.sequence_by,) if isinstance(self.sequence_by, str) else self.sequence_by

    @property
    def sequence_type(self) -> str:
        """The type of the column `sequence`. Needs Spark."""
        by = ", ".join(f"`{name}`: {self.decoding.schema[name].dataType.simpleString()}" for name in self.ordered_by)
        by = f"`{SNAPSHOT}`: bigint" if self.has_snapshots_in_order else by
        row = ", row: INT" if self.topic.rows else ""
        return f"STRUCT<{f'by: STRUCT<{by}>, ' if by else ''}{SEQUENCE}{row}>"

    @property
    def origins(self) -> tuple[str, ...]:
        """What lands, as the graph of the pipeline names it: `topic stores`, or `postgres public.regions`."""
        return self.topic.origins if self.source is None else (self.source.place,)

    @property
    def has_snapshots_in_order(self) -> bool:
        """Whether the snapshots of the source order versions, as their times do not: the rows have times of their own.

        Otherwise their times do, which are those of the snapshots.
        """
        return self.source is not None and self.has_own_time

    @property
    def source_keys(self) -> tuple[str, ...]:
        """The fields of the source that are the key."""
        return tuple(self.columns[key].strip("`") for key in self.keys)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of `key`."""
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def definition(self) -> dict[str, str]:
        """What the rows of its tables are made from, by name. `FIXED` are the names that only a rebuild can change."""
        some = self.ignore_null_updates or False
        others = [name for name in self.columns if name not in (*self.keys, *self.ordered_by)]
        by_name = [self.columns[name] for name in (*self.keys, *self.ordered_by)]
        fixed = fingerprints([*by_name, self.occurred_at, self.topic.rows])
        checks = of_mode(self.checks, Mode.QUARANTINE)
        called = [*(self.columns[name] for name in others), self.deleted_at, *(each.sql for each in checks.values())]
        return {
            "key": self._sql_of(self.keys),
            "sequence_by": self._sql_of(self.ordered_by),
            **({"occurred_at": self.occurred_at} if self.has_own_time else {}),
            **({"functions": ", ".join(f"{name} {each}" for name, each in fixed.items())} if fixed else {}),
            **self.topic.definition,
            **{f"field {each.name}": type_name(each.dataType) for each in self.topic.fields},
            **{f"column {name}": self.columns[name] for name in others},
            "deleted_at": self.deleted_at,
            **({"envelope": str(self.topic.envelope)} if self.topic.envelope else {}),
            "ignore_null_updates": ", ".join(some) if isinstance(some, tuple) else str(some),
            **{f"check {name}": check.sql for name, check in checks.items()},
            **fingerprints(called),
        }

    def _sql_of(self, names: Sequence[str]) -> str:
        given = ((name, self.columns[name]) for name in names)
        return ", ".join(name if sql == name else f"{sql} AS {name}" for name, sql in given)

    @property
    def key_types(self) -> list[DataType]:
        """The types of the key's columns. Needs Spark."""
        return [self.decoding.schema[name].dataType for name in self.keys]

    @property
    def values(self) -> tuple[str, ...]:
        """All columns except the keys."""
        return tuple(name for name in self.columns if name not in self.keys)

    def __post_init__(self) -> None:
        if not self.keys or len(self.keys) != len(set(self.keys)):
            raise ConfigurationError(f"{self.name}: key {self.key!r}: must be one or more columns, each once")
        if len(self.ordered_by) != len(set(self.ordered_by)):
            raise ConfigurationError(f"{self.name}: sequence_by {self.sequence_by!r}: must be columns, each once")
        for what, names in {"key": self.keys, "sequence_by": self.ordered_by}.items():
            for name in names:
                if name not in self.columns:
                    raise ConfigurationError(f"{self.name}: {what} {name}: must be one of {', '.join(self.columns)}")
        if taken := [name for name in self.columns if name.lower() in RESERVED]:
            raise ConfigurationError(f"{self.name}: column {taken[0]}: silver has one of that name: choose another")
        known = {**dict.fromkeys(self.keys, "key"), **dict.fromkeys(self.ordered_by, "sequence_by")}
        refuse_wrong_pii(self.name, self.personal, self.columns, known)
        self._refuse_wrong_updates()
        self._refuse_wrong_checks()
        if self.source is not None:
            self._refuse_wrong_source(self.source)

    def _refuse_wrong_source(self, source: Postgres | Files | DeltaTable | Service) -> None:
        if replace(self.topic, schemas=()) != source.topic:
            raise ConfigurationError(f"{self.name}: has a topic and a source: leave one of them out")
        for argument in ("sequence_by", "ignore_null_updates"):
            if getattr(self, argument):
                why = "each snapshot of a source says all of its rows, and in what order"
                if isinstance(source, Service):
                    why = "an answer of a service is whole, and the newest one counts"
                raise ConfigurationError(f"{self.name}: {argument}: {why}: leave it out")
        if isinstance(source, Service):
            self._refuse_wrong_service(source)
        kinds = {each.name: each.dataType for each in source.columns}
        for key, name in zip(self.keys, self.source_keys, strict=True):
            if name not in kinds:
                raise ConfigurationError(
                    f"{self.name}: key {key}: {self.columns[key]}: must be a field of the source: {', '.join(kinds)}"
                )
            if type(kinds[name]) not in KEY_TYPES:
                kind, right = type_name(kinds[name]), "a text, an integer, a boolean or a date"
                raise ConfigurationError(f"{self.name}: key {key} is {kind}: must be {right}")

    def _refuse_wrong_service(self, service: Service) -> None:
        arguments = service.arguments.names
        if list(self.source_keys) != arguments:
            raise ConfigurationError(
                f"{self.name}: key {', '.join(self.keys)}: must be the arguments of the service, in their order: "
                f"{', '.join(arguments)}"
            )
        if not self.expires and self.deleted_at != "NULL":
            raise ConfigurationError(
                f"{self.name}: deleted_at: facts would wait for what a service says is deleted, and it is asked once: "
                "leave it out, and make it a column, or say how long answers hold with cache_days of the service"
            )
        if self.expires:
            ends = f"message.event_time + INTERVAL {service.cache_days} DAYS"
            if self.deleted_at not in ("NULL", ends):
                raise ConfigurationError(
                    f"{self.name}: deleted_at: cache_days of the service says when an answer ends: leave one out"
                )
            object.__setattr__(self, "deleted_at", ends)

    def _refuse_wrong_updates(self) -> None:
        for name in self.ignoring:
            if name not in self.values:
                known = ", ".join(self.values)
                raise ConfigurationError(f"{self.name}: ignore_null_updates {name}: must be one of {known}")
        if self.ignore_null_updates and not self.keeps_history:
            raise ConfigurationError(f"{self.name}: ignore_null_updates needs keeps_history")
        if self.may_lack and not self.keeps_history:
            name = next(iter(self.may_lack))
            raise ConfigurationError(
                f"{self.name}: keeps_history=False: column {name} needs it, as a message may leave out what did not "
                "change: keep the history"
            )

    def _refuse_wrong_checks(self) -> None:
        refuse_wrong(self.checks, within=self.name)
        for name in of_mode(self.checks, Mode.QUARANTINE):
            if self.is_partial:
                by = "ignore_null_updates has updates of some fields"
                raise ConfigurationError(
                    f"{self.name}: check {name}: quarantine is of whole messages, and "
                    f"{by if self.ignoring else 'an envelope may leave out some fields'}: use warn or fail"
                )
            if not self.keeps_history:
                raise ConfigurationError(
                    f"{self.name}: check {name}: quarantine needs keeps_history, which tells the messages that were "
                    "merged before the check was declared: use warn or fail"
                )

    @property
    def table(self) -> Table:
        """Latest state, one row per key."""
        return self._table(self.name)

    @property
    def history(self) -> Table:
        """All versions, one row per message. Each was the state from `valid_from` until just before `valid_until`.

        `valid_from` is the version's event time, and `valid_until` the earliest event time of the versions that follow
        it in their sequence. The last version has no `valid_until`. A version that was replaced at the same event time,
        or by one with an earlier event time, was never valid: its two times are equal. With partial updates, `given`
        names the columns that the message gave, and the fields of structs that ignore NULL, such as `address.city`.
        """
        given = ", given ARRAY<STRING>" if self.is_partial else ""
        return self._table(f"{self.name}_history", f", {VALIDITY}{given}")

    def _table(self, name: str, more: str = "") -> Table:
        return Table(
            name=f"silver.{name}",
            columns=lambda: self._columns(more),
            properties={"delta.enableChangeDataFeed": "true", **made_from(self.definition)},
        )

    def _columns(self, more: str) -> str:
        if wrong := list(self.mistakes_in_types()):
            raise DeclarationsError([f"{self.name}: {line}" for line in wrong])
        columns = StructType([each for each in self.decoding.schema if each.name != OCCURRED_AT])
        return f"{ddl_of(columns)}, sequence {self.sequence_type}{more}"

    def mistakes_in_types(self) -> Iterator[str]:
        """A line for each column that has no order or that no message key can have, and for a wrong `occurred_at`.

        Needs Spark.
        """
        atomic = "a number, a text or a time"
        yield from self._unlike("sequence_by", self.ordered_by, (AtomicType,), atomic)
        if len(self.keys) == 1:
            yield from self._unlike("key", self.keys, (AtomicType,), atomic)
        else:
            yield from self._unlike("key", self.keys, IN_KEYS, AS_IN_KEYS)
        if self.has_own_time and not isinstance(kind := self.decoding.schema[OCCURRED_AT].dataType, TimestampType):
            yield f"occurred_at: {self.occurred_at} is {kind.simpleString()}: {TIME}"

    def _unlike(
        self, what: str, columns: Sequence[str], kinds: tuple[type[DataType], ...], right: str
    ) -> Iterator[str]:
        for name in columns:
            kind = self.decoding.schema[name].dataType
            if not isinstance(kind, kinds):
                yield f"{what} {name} is {kind.simpleString()}: must be {right}"
