"""Declares topics: their typed fields, and the schema that Pulsar registers for them."""

import json
import re
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pyspark.sql.types import StructType

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.avro_schemas import topic_record
from pulsar_lakehouse.contracts.ddl import parse_fields
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.types import Encoding as Encoding
from pulsar_lakehouse.contracts.types import KeyEncoding as KeyEncoding
from pulsar_lakehouse.contracts.types import wrong_types
from pulsar_lakehouse.errors import ConfigurationError

SYSTEM = re.compile(r"__.*|.*__transaction_pending_ack")
"""The names of topics that the broker has for itself."""
OF_CONSUMERS = "RETRY", "DLQ"
"""The last words of the names of topics to which consumers send what they could not handle. A pattern matches them only
if it has the word."""


def in_full(name: str, namespace: str) -> str:
    """The full name of a topic in Pulsar, such as `persistent://sales/eu/Stores-v1`."""
    return name if "://" in name else f"persistent://{namespace}/{name}"


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
    schemas: tuple[RegisteredSchema, ...] = ()
    """The schemas that messages were sent with. Not declared: a step reads them for each batch."""

    def __post_init__(self) -> None:
        if not self.record:
            words = re.findall("[A-Za-z0-9]+", self.name)
            object.__setattr__(self, "record", "".join(word[0].upper() + word[1:] for word in words))
        for column in self.fields:
            if column.name.lower() == "message":
                raise ConfigurationError(
                    f"topic {self.name}: field {column.name}: SQL has the message itself under this name"
                )
            if wrong := next(wrong_types(column.dataType, column.name), None):
                raise ConfigurationError(f"topic {self.name}: field {wrong}")

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
        return f"bronze.{self.name}"

    @property
    def subscription(self) -> str:
        """The durable subscription that makes the broker keep messages that have not landed yet."""
        return f"lakehouse-{self.bronze_table}"

    def pulsar_schema(self) -> str:
        """The Avro record, as JSON, that Pulsar registers for the topic."""
        return json.dumps(topic_record(self.record, self.fields, self.encoding))
