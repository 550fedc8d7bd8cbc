"""Declares topics: their typed fields, and the schema that Pulsar registers for them."""

import json
import re
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import Any

import sqlglot
from pyspark.sql.types import ArrayType, StructType
from sqlglot.errors import SqlglotError

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.avro_schemas import topic_record
from pulsar_lakehouse.contracts.ddl import parse_fields
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.types import Encoding as Encoding
from pulsar_lakehouse.contracts.types import KeyEncoding as KeyEncoding
from pulsar_lakehouse.contracts.types import wrong_types
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.tables.declared import NAME, POSITION, POSITION_OF_ROW

SYSTEM = re.compile(r"__.*|.*__transaction_pending_ack")
"""The names of topics that the broker has for itself."""
OF_CONSUMERS = "RETRY", "DLQ"
"""The last words of the names of topics to which consumers send what they could not handle. A pattern matches them only
if it has the word."""


def in_full(name: str, namespace: str) -> str:
    """The full name of a topic in Pulsar, such as `persistent://sales/eu/Stores-v1`."""
    return name if "://" in name else f"persistent://{namespace}/{name}"


ROWS = "rows of messages"
"""The name of `rows` in the definition of a table. SQL tables have one of their own that is named `rows`."""


class Fields:
    """The fields of a topic or a source: a StructType, which can be given as DDL text."""

    accepts = StructType | str

    def __get__(self, topic: Any, owner: type) -> StructType:
        if topic is None:
            raise AttributeError("fields")  # so that a dataclass finds no default
        fields: StructType = topic.__dict__["fields"]
        return fields

    def __set__(self, topic: Any, given: StructType | str) -> None:
        try:
            topic.__dict__["fields"] = parse_fields(given) if isinstance(given, str) else given
        except ValueError as error:
            raise ConfigurationError(f"{type(topic).__name__.lower()} {topic.name}: {error}") from None


def table_name(topic: str) -> str:
    """The name for the tables of a topic with this name in Pulsar: `user_events` for UserEvents or user-events."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+", "_", topic.rpartition("/")[2], flags=re.ASCII).lower().strip("_")
    return words if NAME.fullmatch(words) else f"topic_{words}".strip("_")


@cache
def is_by_message(sql: str) -> bool:
    """Whether SQL uses nothing of a message but what its payload does not say, such as `message.properties`."""
    try:
        columns = sqlglot.parse_one(sql, dialect="spark").find_all(sqlglot.exp.Column)
    except SqlglotError:  # Spark may still understand it
        return False
    return all(len(each.parts) > 1 and each.parts[0].name.lower() == "message" for each in columns)


@checked
@dataclass(frozen=True)
class Topic:
    """A Pulsar topic whose payloads are objects."""

    name: str
    """The name of the topic's bronze table. The topic has it, too, unless `topic` says another.
    Example: `name="stores"`"""
    fields: Fields = Fields()
    """The payload's typed fields, as DDL text or a StructType. Those that are NOT NULL are required.
    Example: `fields="id BIGINT NOT NULL, city STRING"`"""
    _: KW_ONLY
    topic: str | re.Pattern[str] | tuple[str, ...] = ""
    """The topic's name in Pulsar, if it is another one: within the namespace, or a full one such as
    `persistent://sales/eu/Stores-v1`. Several topics, which land in one table, are a tuple of names, or a pattern such
    as `re.compile("stores-.*")` that whole names match: those that come later are found.
    Example: `topic=("stores-eu", "stores-us")`"""
    record: str = ""
    """The name of the schema that is registered in Pulsar; by default that of the topic, such as Stores for stores.
    Example: `record="Store"`"""
    changelog: bool = False
    """Whether the broker keeps the messages forever. Example: `changelog=True`"""
    encoding: Encoding = Encoding.JSON
    """How payloads are written, where no registered schema tells it. Example: `encoding=Encoding.AVRO`"""
    key_encoding: KeyEncoding = KeyEncoding.TEXT
    """How message keys are written, where no registered schema tells it. Example: `key_encoding=KeyEncoding.JSON`"""
    envelope: Debezium | None = None
    """What a payload wraps a row in, if a tool replicates a database. The fields are the row's columns, and metadata
    such as `__source_ts_ms`. Example: `envelope=Debezium()`"""
    where: str = ""
    """SQL over the fields and the message that is TRUE of the messages that are meant, if the topic has several kinds:
    each is declared under a name of its own, with the same `topic` and its own fields. They land once, in the bronze
    table of the topic's name. A payload that can't be read, so that nothing but the message can tell its kind, belongs
    to the first of those whose `where` uses fields; one that is encrypted, else to the first. Messages of no kind stay
    in bronze, and are counted.
    Tables that exist keep this SQL: to change it, `lakehouse rebuild` them.
    Example: `where="message.properties['type'] = 'refund'"`"""
    rows: str = ""
    """SQL over the fields and the message that gives an array, if a message can have many rows, such as the lines of an
    order. Each element becomes a row: the SQL of columns has it as `row`, and its place, from 0, as
    `message.position.row`. A message with an empty array, or NULL, has no rows. A JSON payload can itself be the array,
    if that is the only field. Tables that exist keep this SQL: to change it, `lakehouse rebuild` them.
    Example: `rows="lines"`"""
    schemas: tuple[RegisteredSchema, ...] = ()
    """The schemas that messages were sent with. Not declared: a step reads them for each batch."""
    kinds: tuple[tuple[str, str], ...] = ()
    """The names and the `where` of all kinds of the topic, in order. Not declared: a step adds them."""

    def __post_init__(self) -> None:
        if not self.record:
            words = re.findall("[A-Za-z0-9]+", self.name)
            object.__setattr__(self, "record", "".join(word[0].upper() + word[1:] for word in words))
        for column in self.fields:
            if column.name.lower() == "message":
                raise ConfigurationError(
                    f"topic {self.name}: field {column.name}: SQL has the message itself under this name"
                )
            if self.rows and column.name.lower() == "row":
                raise ConfigurationError(
                    f"topic {self.name}: field {column.name}: SQL has the element of {self.rows} under this name"
                )
            if wrong := next(wrong_types(column.dataType, column.name), None):
                raise ConfigurationError(f"topic {self.name}: field {wrong}")
        if self.where and self.is_several:
            raise ConfigurationError(f"topic {self.name}: where {self.where}: kinds are of one topic: name it in topic")
        if self.envelope and self.is_several:
            raise ConfigurationError(
                f"topic {self.name}: envelope: a truncation in one of the topics would delete the rows of all: "
                "declare each by itself"
            )
        if self.rows and self.envelope:
            raise ConfigurationError(
                f"topic {self.name}: rows {self.rows}: an envelope has one row: leave out one of them"
            )

    @property
    def own_names(self) -> tuple[str, ...]:
        """Its names in Pulsar: within the namespace, or full ones. A pattern is its text."""
        if isinstance(self.topic, re.Pattern):
            return (self.topic.pattern,)
        return self.topic if isinstance(self.topic, tuple) else (self.topic or self.name,)

    @property
    def own_name(self) -> str:
        """The same as a text."""
        return ", ".join(self.own_names)

    @property
    def origins(self) -> tuple[str, ...]:
        """Each of them as the graph of the pipeline names it, such as `topic stores-eu`."""
        return tuple(f"topic {name}" for name in self.own_names)

    @property
    def is_several(self) -> bool:
        """Whether it is declared as several topics of Pulsar, though there may be only one of them."""
        return not isinstance(self.topic, str)

    def full_name(self, namespace: str) -> str:
        """Its name in Pulsar, such as `persistent://sales/eu/Stores-v1`, if the pipeline has this namespace.

        It must be one topic.
        """
        [name] = self.own_names
        return in_full(name, namespace)

    def lands(self, name: str, namespace: str) -> bool:
        """Whether the topic with this full name in Pulsar is one of its topics. Pulsar's own match no pattern."""
        if not isinstance(self.topic, re.Pattern):
            return name in (in_full(each, namespace) for each in self.own_names)
        text, home, short = self.topic.pattern, f"persistent://{namespace}/", name.rpartition("/")[2]
        if SYSTEM.fullmatch(short) or any(short.endswith(f"-{each}") and each not in text for each in OF_CONSUMERS):
            return False
        if "://" in text:
            return self.topic.fullmatch(name) is not None
        return name.startswith(home) and self.topic.fullmatch(short) is not None

    @property
    def bronze_table(self) -> str:
        return f"bronze.{self.landing_name}"

    @property
    def landing_name(self) -> str:
        """The name under which its messages land: its own, or that of the topic if others have kinds of it."""
        return table_name(self.own_name) if self.where else self.name

    @property
    def landing(self) -> "Topic":
        """What lands: itself, or the topic of all kinds."""
        return replace(self, name=self.landing_name, topic=self.own_name) if self.where else self

    @property
    def is_plain(self) -> bool:
        """Whether each message that lands is one row of it: neither kinds nor rows are declared."""
        return not self.where and not self.rows

    @property
    def first_kind(self) -> bool:
        """Whether it has the messages that can't be read, so that nothing tells their kind."""
        conditions = [where for _, where in self.kinds] or [self.where]
        by_fields = [where for where in conditions if not is_by_message(where)]
        return self.where == (by_fields or conditions)[0]

    @property
    def kind_names(self) -> tuple[str, ...]:
        """The names of all kinds of the topic."""
        return tuple(name for name, _ in self.kinds) or (self.name,)

    @property
    def is_array(self) -> bool:
        """Whether a payload can itself be the array of rows."""
        return bool(self.rows) and len(self.fields) == 1 and isinstance(self.fields[0].dataType, ArrayType)

    @property
    def definition(self) -> dict[str, str]:
        """What the rows of messages are made from, by name, if it is declared."""
        return {name: sql for name, sql in (("where", self.where), (ROWS, self.rows)) if sql}

    @property
    def position(self) -> str:
        """The type of a row's position."""
        return POSITION_OF_ROW if self.rows else POSITION

    @property
    def subscription(self) -> str:
        """The durable subscription that makes the broker keep messages that have not landed yet."""
        return f"lakehouse-{self.bronze_table}"

    def pulsar_schema(self) -> str:
        """The Avro record, as JSON, that Pulsar registers for the topic."""
        return json.dumps(topic_record(self.record, self.fields, self.encoding))
