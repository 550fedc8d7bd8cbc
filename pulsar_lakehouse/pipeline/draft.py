"""Drafts the declaration of a topic from what is in it, for a person to go on with."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlglot import TokenType, tokenize

from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import OWN_COLUMNS
from pulsar_lakehouse.pipeline.checks import NAME
from pulsar_lakehouse.pipeline.field_types import Field, are_times, fields_of_payloads, fields_of_record
from pulsar_lakehouse.pulsar.topic_contents import Contents
from pulsar_lakehouse.silver.entity import RESERVED
from pulsar_lakehouse.terminal import one_line

Payload = dict[str, Any]

ENTITY = '''\
"""A draft of the topic {topic}, from {source}."""

from pulsar_lakehouse import {imports}

# {why}
# If messages are events, which replace none, declare an Enrichment instead.
{variable} = Entity(
    topic={declared},
    key="{key}",
    columns="""
        {columns}
    """,
    # If a field says since when the key is deleted, name it: deleted_at="deletedAt"
    # If a field orders the messages of a key better than their event time, name it: sequence_by="version"
)
'''
FACTS = '''\
"""A draft of the topic {topic}, from {source}."""

from pulsar_lakehouse import {imports}

# {why}
# If a message replaces earlier ones of its key, declare an Entity instead.
{variable} = Enrichment(
    topic={declared},
    columns="""
        {columns}
    """,
    # Which columns tell a duplicate from another event?
    keys=("{key}",),
    # When did it happen?
    event_time="{time}",
    day="{day}",
    # Which entities does an event belong to? Such as Lookup(entity=STORES, on="store_id")
    lookups=(),
)
'''


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    sql: str
    field: str = ""
    """The field that it is made from."""
    is_time: bool = False

    @property
    def text(self) -> str:
        return self.sql if self.sql == self.name else f"{self.sql} AS {self.name}"


MESSAGE_ID = Column(
    name="message_id",
    sql="concat_ws(':', message.position.ledger_id, message.position.entry_id, message.position.batch_index)",
)
MESSAGE_TIME = Column(name="event_time", sql="coalesce(message.event_time, message.publish_time)", is_time=True)


@dataclass(frozen=True)
class _Draft:
    """What the texts say of a topic."""

    contents: Contents

    @cached_property
    def record(self) -> Payload:
        """The record of the registered schema; empty if there is none."""
        schema = self.contents.schema
        found = json.loads(schema["data"]) if schema and schema["type"] in list(Encoding) else {}
        return found if "fields" in found else {}

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(self.contents.schema["type"]) if self.record and self.contents.schema else Encoding.JSON

    @cached_property
    def payloads(self) -> list[tuple[str | None, Payload]]:
        """The payloads that are JSON objects, each with its message key."""
        read = ((each.key, _json_object(each.payload)) for each in self.contents.sample)
        return [(key, payload) for key, payload in read if payload is not None]

    @cached_property
    def found(self) -> list[Field]:
        fields = fields_of_record(self.record) if self.record else fields_of_payloads(each for _, each in self.payloads)
        names = [each.name.lower() for each in fields]  # SQL does not tell upper from lower case
        return [
            replace(each, ddl="" if name in names[:at] else each.ddl)
            for at, (each, name) in enumerate(zip(fields, names, strict=True))
        ]

    @cached_property
    def columns(self) -> list[Column]:
        """A column for each field that can be declared."""
        taken = {*RESERVED, *OWN_COLUMNS, MESSAGE_ID.name, MESSAGE_TIME.name}
        columns = []
        for each in self.found:
            if each.is_declarable:
                columns.append(_column(each, taken, self.values(each.name), self.contents.topic))
                taken.add(columns[-1].name)
        return columns

    @cached_property
    def key(self) -> Column | None:
        """The column that is the message key of each message; where payloads are not JSON, the one named id."""
        keys = [each.key for each in self.contents.sample]
        if not keys or None in keys:
            return None
        if not self.payloads:
            return next((each for each in self.columns if each.name == "id"), None)
        equal = (each for each in self.columns if all(_text(row.get(each.field)) == key for key, row in self.payloads))
        return next(equal, None)

    def values(self, field: str) -> list[Any]:
        """The values of a field that are not null, in the sample."""
        return [payload[field] for _, payload in self.payloads if payload.get(field) is not None]

    def is_identity(self, column: Column) -> bool:
        """Whether the column is named like an id, and each message of the sample has another one."""
        values = self.values(column.field)
        is_unique = 1 < len(values) == len(self.payloads) == len(set(map(str, values)))
        return is_unique and re.search(r"(^|_)id$", column.name) is not None

    def filled(self, kind: str, *, why: str, key: Column, columns: Sequence[Column], **more: str) -> str:
        """The text that declares the topic as an Entity or an Enrichment."""
        source = f"{len(self.payloads):,} of its messages"
        if self.record and self.contents.schema:
            source = f"version {self.contents.schema['version']} of its {self.encoding} schema"
        return (ENTITY if kind == "Entity" else FACTS).format(
            topic=self.contents.topic,
            source=source,
            imports=", ".join(sorted([kind, "Topic", *(["Encoding"] if self.encoding == Encoding.AVRO else [])])),
            why=why,
            variable=self.contents.topic.upper(),
            declared=self._declared(key),
            key=key.name,
            columns=",\n        ".join(each.text for each in columns),
            **more,
        )

    def _declared(self, key: Column) -> str:
        """The Topic, as code."""
        name, fields = self.contents.topic, (each for each in self.found if each.is_declarable)
        ddl = [f"{_quoted(each.name)} {each.ddl}{_required(each, key)}" for each in fields]
        record = self.record.get("name")
        lines = [
            f'"{name}",',
            '"""',
            *(f"    {each}," for each in ddl[:-1]),
            f"    {ddl[-1]}",
            '""",',
            *(f"# Not declared: {one_line(each.name)}: {each.seen}" for each in self.found if not each.is_declarable),
            *([f"record={json.dumps(record)},"] if record and record != Topic(name, "id INT").record else []),
            *(["encoding=Encoding.AVRO,"] if self.encoding == Encoding.AVRO else []),
        ]
        return "\n        ".join(["Topic(", *lines]) + "\n    )"


def draft(contents: Contents) -> str:
    """The text of a Python file that declares the topic: an entity if a field is the message key, else facts.

    Raises ConfigurationError if its name can't be that of tables, or if no field is known.
    """
    found, topic = _Draft(contents), contents.topic
    if not NAME.fullmatch(topic):
        raise ConfigurationError(f"{topic}: a topic that has tables must be named in lower case, such as orders")
    if not found.columns:
        raise ConfigurationError(f"{topic}: has no schema with fields, and no message with a JSON object")
    if found.key is not None:
        why = f"Each message has a key, the {found.key.field}: it is taken for the state of that key."
        return found.filled("Entity", why=why, key=found.key, columns=found.columns)
    has_keys = any(each.key for each in found.contents.sample)
    why = "The message keys are no field" if has_keys else "The messages have no keys"
    why = f"{why}: they are taken for events." if found.contents.sample else "There is no message yet."
    key = next(filter(found.is_identity, found.columns), MESSAGE_ID)
    time = next((each for each in found.columns if each.is_time), MESSAGE_TIME)
    columns = [*found.columns, *(each for each in (key, time) if each not in found.columns)]
    day = _unused(f"{time.name.removesuffix('_at').removesuffix('_time')}_date", {each.name for each in columns})
    return found.filled("Enrichment", why=why, key=key, columns=columns, time=time.name, day=day)


def _column(field: Field, taken: Iterable[str], values: Sequence[Any], topic: str) -> Column:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", field.name, flags=re.ASCII).lower().strip("_")
    name = _unused(words if NAME.fullmatch(words) else f"{topic}_{words}", taken, topic)
    sql = _quoted(field.name)
    if field.ddl == "BIGINT" and are_times(values):
        return Column(name=name, sql=f"timestamp_millis({sql})", field=field.name, is_time=True)
    return Column(name=name, sql=sql, field=field.name, is_time=field.ddl.startswith("TIMESTAMP"))


def _unused(name: str, taken: Iterable[str], topic: str = "") -> str:
    while name in taken:
        name = f"{topic}_{name}" if topic else f"{name}_"
    return name


def _quoted(name: str) -> str:
    """A field's name in SQL: in backticks unless it is a word that SQL has no other use for."""
    is_word = re.fullmatch(r"[a-zA-Z]\w*", name, re.ASCII) and tokenize(name)[0].token_type is TokenType.VAR
    return name if is_word else f"`{name}`"


def _required(field: Field, key: Column) -> str:
    return " NOT NULL" if field.is_required or field.name == key.field else ""


def _text(value: Any) -> str | None:
    """A value as message keys have it, if they can."""
    return str(value) if type(value) in (str, int) else None


def _json_object(payload: bytes | None) -> Payload | None:
    try:
        value = json.loads(payload or b"null")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
