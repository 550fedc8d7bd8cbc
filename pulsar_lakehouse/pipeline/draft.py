"""Drafts the declaration of a topic from what is in it, for a person to go on with."""

import json
import re
import struct
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from pulsar_lakehouse.contracts.registered import KEY, PRIMITIVES, VALUE, part_of, record_of
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, KeyEncoding, Topic, table_name
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import OWN_COLUMNS
from pulsar_lakehouse.pipeline.checks import IN_PULSAR, OWN_TABLES
from pulsar_lakehouse.pipeline.drafted_envelopes import NO_KEY, SOURCE, FoundEnvelope, envelope_of, plain_key
from pulsar_lakehouse.pipeline.drafted_keys import FoundKey, key_of_messages, key_of_schema
from pulsar_lakehouse.pipeline.field_types import ID, Field, are_times, fields_of_payloads, fields_of_record, quoted
from pulsar_lakehouse.pipeline.protobuf_fields import fields_of_descriptor
from pulsar_lakehouse.pulsar.topic_contents import Contents
from pulsar_lakehouse.silver.entity import RESERVED
from pulsar_lakehouse.tables.declared import NAME
from pulsar_lakehouse.terminal import one_line

Payload = dict[str, Any]

ENTITY = '''\
"""A draft of the topic {topic}, from {source}."""

from pulsar_lakehouse import {imports}

# {why}
{variable} = Entity(
    topic={declared},
    key={key},
    columns="""
        {columns}
    """,
    {order}
)
'''
ORDER = '''\
# If a field says since when the key is deleted, name it: deleted_at="deletedAt"
    # If a field orders the messages of a key better than their event time, name it: sequence_by="version"'''
OR_FACTS = "# If messages are events, which replace none, declare an Enrichment instead."
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
    keys=({key},),
    # When did it happen?
    event_time="{time}",
    day="{day}",
    # Which entities does an event belong to? Such as Lookup(entity=STORES, on="store_id")
    lookups=(),
)
'''


OFFSETS = "-debezium-offset-topic"


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
    name: str
    """That of its tables."""

    @cached_property
    def value(self) -> RegisteredSchema:
        """The registered schema, or that of the value if it is a KeyValue schema."""
        none = RegisteredSchema(version=0, type="NONE", data="")
        return part_of(self.contents.schema or none, VALUE)

    @cached_property
    def record(self) -> Payload:
        """The record of the registered schema; empty if there is none."""
        return record_of(self.value)

    @cached_property
    def encoding(self) -> Encoding:
        if self.value.type == Encoding.STRING and not self.objects:
            return Encoding.STRING
        is_told = self.record or self.value.type == Encoding.PROTOBUF_NATIVE
        return Encoding(self.value.type) if is_told else Encoding.JSON

    @cached_property
    def envelope(self) -> FoundEnvelope | None:
        return envelope_of(self.record, self.encoding, self.objects)

    @cached_property
    def payloads(self) -> list[tuple[str | None, Payload]]:
        """The payloads that are JSON objects, or the rows in them, each with its message key."""
        return [*self.envelope.rows] if self.envelope else self.objects

    @cached_property
    def objects(self) -> list[tuple[str | None, Payload]]:
        read = ((key, _json_object(value)) for key, value in self.messages)
        return [(key, payload) for key, payload in read if payload is not None]

    @cached_property
    def messages(self) -> list[tuple[str | None, bytes | None]]:
        """The keys and values of the sample. A pair of a KeyValue schema is taken apart."""
        schema, sample = self.contents.schema, self.contents.sample
        if schema is None or schema.type != "KEY_VALUE":
            return [(plain_key(each.key), each.payload) for each in sample]
        is_inline, kind = schema.properties.get("kv.encoding.type") == "INLINE", part_of(schema, KEY).type
        pairs = (_pair(each.payload) if is_inline else (_bytes_of(each.key), each.payload) for each in sample)
        return [(_text_of(kind, key), value) for key, value in pairs]

    @cached_property
    def found(self) -> list[Field]:
        """The fields of the payload, and those of the key that it has not."""
        fields, known = self.fields_of_value, {each.name for each in self.fields_of_value}
        of_key = self.key.fields if self.key and not self.key.is_single else ()
        return [*fields, *(each for each in of_key if each.name not in known)]

    @cached_property
    def fields_of_value(self) -> list[Field]:
        if self.envelope:
            fields = [*self.envelope.columns]
        elif self.record:
            fields = fields_of_record(self.record, self.encoding)
        elif self.value.type == Encoding.PROTOBUF_NATIVE:
            fields = fields_of_descriptor(self.value)
        elif self.value.type in PRIMITIVES and not self.payloads:
            kind = PRIMITIVES[self.value.type]
            fields = [Field(name=VALUE, ddl=kind, seen=self.value.type, is_required=True)]
        else:
            fields = fields_of_payloads(each for _, each in self.payloads)
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
                columns.append(_column(each, taken, self.values(each.name), self.name))
                taken.add(columns[-1].name)
        if self.key and self.key.is_single:
            [key] = self.key.fields
            sql = "message.key" if key.ddl == "STRING" else f"CAST(message.key AS {key.ddl})"
            columns.append(Column(name=_unused(key.name, taken, self.name), sql=sql, field=key.name))
        return columns

    @cached_property
    def key(self) -> FoundKey | None:
        """The fields that are the message key of each message; None if no fields are."""
        fields = [each for each in self.fields_of_value if each.is_declarable and not self.is_time(each)]
        keys, schema = [key for key, _ in self.messages if not self._has_no_key(key)], self.contents.schema
        if schema and schema.type == "KEY_VALUE":
            found = key_of_schema(schema, self.fields_of_value, self.payloads)
        elif keys and None not in keys:
            found = key_of_messages([key for key in keys if key], fields, self.payloads)
        else:
            found = None
        if found and self.value.type in PRIMITIVES and not self.payloads and not found.is_single:
            found = None  # beside the one value of a payload, there are no fields of the key
        undeclared = {each.name for each in self.fields_of_value if not each.is_declarable}
        if found and any(each.name in undeclared or not each.is_declarable for each in found.fields):
            found = None
        return found if found and found.is_usable else None

    def _has_no_key(self, key: str | None) -> bool:
        return self.envelope is not None and key in (None, NO_KEY)

    @cached_property
    def position(self) -> list[Column]:
        """What orders the changes of a row, in an envelope."""
        fields, taken = self.envelope.position if self.envelope else (), {each.name for each in self.columns}
        names = ((each, each.name.removeprefix(SOURCE)) for each in fields)
        return [Column(name=_unused(name, taken, self.name), sql=each.name, field=each.name) for each, name in names]

    def is_time(self, field: Field) -> bool:
        return _column(field, (), self.values(field.name), self.name).is_time

    def values(self, field: str) -> list[Any]:
        """The values of a field that are not null, in the sample."""
        return [payload[field] for _, payload in self.payloads if payload.get(field) is not None]

    def is_identity(self, column: Column) -> bool:
        """Whether the column is named like an id, and each message of the sample has another one."""
        values = self.values(column.field)
        is_unique = 1 < len(values) == len(self.payloads) == len(set(map(str, values)))
        return is_unique and re.search(r"(^|_)id$", column.name) is not None

    def filled(self, kind: str, *, why: str, keys: Sequence[Column], columns: Sequence[Column], **more: str) -> str:
        """The text that declares the topic as an Entity or an Enrichment."""
        source = f"{len(self.payloads):,} of its messages"
        if self.contents.schema and (self.record or not self.payloads):
            source = f"version {self.contents.schema.version} of its {self.contents.schema.type} schema"
        used = {
            kind,
            "Topic",
            *(["Debezium"] if self.envelope else []),
            *(each.partition(".")[0] for each in self._encodings.values()),
        }
        return (ENTITY if kind == "Entity" else FACTS).format(
            topic=re.sub(r"[\"\\]", "'", one_line(self.contents.topic)),
            source=source,
            imports=", ".join(sorted(used)),
            why=why,
            variable=self.name.upper(),
            order=self._order,
            declared=self._declared({each.field for each in keys}),
            key=_listed(keys),
            columns=",\n        ".join(each.text for each in columns),
            **more,
        )

    @property
    def _order(self) -> str:
        if not self.envelope:
            return ORDER
        lines = [f"sequence_by={_listed(self.position)},"] if self.position else []
        lines += [f'occurred_at="{self.envelope.time.name}",'] if self.envelope.time else []
        return "\n    ".join(lines)

    @property
    def _encodings(self) -> dict[str, str]:
        """The arguments of the Topic for what its schema does not tell, as code."""
        given = {"encoding": f"Encoding.{self.encoding}"} if self.encoding is not Encoding.JSON else {}
        if self.key and self.key.encoding is not KeyEncoding.TEXT:
            given["key_encoding"] = f"KeyEncoding.{self.key.encoding}"
        return given

    def _declared(self, keys: Iterable[str]) -> str:
        """The Topic, as code."""
        of_payload, own, record = {each.name for each in self.fields_of_value}, self.contents.topic, self.record
        metadata = [*self.envelope.position, *filter(None, [self.envelope.time])] if self.envelope else []
        fields = (each for each in (*self.found, *metadata) if each.is_declarable)
        required = {each.name for each in self.found if each.is_required or each.name in keys} & of_payload
        ddl = [f"{quoted(each.name)} {each.ddl}{' NOT NULL' * (each.name in required)}" for each in fields]
        is_named = record and not self.envelope and record.get("name") != Topic(self.name, "id INT").record
        lines = [
            f'"{self.name}",',
            '"""',
            *(f"    {each}," for each in ddl[:-1]),
            f"    {ddl[-1]}",
            '""",',
            *(f"# Not declared: {one_line(each.name)}: {each.seen}" for each in self.found if not each.is_declarable),
            *([f"topic={json.dumps(own, ensure_ascii=False)},"] if own != self.name else []),
            *([f"record={json.dumps(record['name'])},"] if is_named else []),
            *(f"{name}={code}," for name, code in self._encodings.items()),
            *(["envelope=Debezium(),"] if self.envelope else []),
        ]
        return "\n        ".join(["Topic(", *lines]) + "\n    )"


def names_of(found: Iterable[Contents]) -> dict[str, str]:
    """A name for the tables of each topic. A topic whose name tables can have keeps it; others get one that is free.

    Debezium's topics are named after a server, a schema and a table: the tables here are named after that table.
    """
    wanted = {
        each.topic: table_name(each.topic.rpartition(".")[2] if _Draft(each, "").envelope else each.topic)
        for each in found
    }
    taken = {name.partition(".")[2] for name in OWN_TABLES}
    names: dict[str, str] = {}
    for topic, name in sorted(wanted.items(), key=lambda each: (each[0] != each[1], each)):
        free = (each for at in count(1) if (each := name if at == 1 else f"{name}_{at}") not in taken)
        names[topic] = next(each for each in free if f"{each}_history" not in taken)
        taken |= {names[topic], f"{names[topic]}_history"}
    return names


def draft(contents: Contents, name: str) -> str:
    """The text of a Python file that declares the topic: an entity if fields are the message key, else facts.

    `name` is that of its tables. Raises ConfigurationError if no field is known, or if the topic is published by a
    lakehouse.
    """
    found, topic = _Draft(contents, name), contents.topic
    if any(each.is_published for each in contents.sample):
        raise ConfigurationError(f"{topic}: a lakehouse publishes it from a table")
    if not IN_PULSAR.fullmatch(topic):
        raise ConfigurationError(f"{topic}: a topic with a comma or a space at an end of its name can't be read")
    if topic.endswith(OFFSETS):
        raise ConfigurationError(f"{topic}: a connector of Pulsar keeps its own position there")
    if not any(each.is_declarable for each in found.found):
        why = contents.problem or "has no schema with fields, and no message with a JSON object"
        raise ConfigurationError(f"{topic}: {why}")
    if found.key is not None:
        by_field = {each.field: each for each in found.columns}  # the last one is a key that is no field
        keys = [by_field[each.name] for each in found.key.fields]
        named = " and ".join(each.field for each in keys)
        why = f"Each message has a key, the {named}: it is taken for the state of that key.\n{OR_FACTS}"
        if found.envelope:
            why = f"Debezium replicates a table whose key is {named}."
        return found.filled("Entity", why=why, keys=keys, columns=[*found.columns, *found.position])
    has_keys = any(each.key for each in found.contents.sample)
    why = "The message keys are no field" if has_keys else "The messages have no keys"
    why = f"{why}: they are taken for events." if found.contents.sample else "There is no message yet."
    key = next(filter(found.is_identity, found.columns), MESSAGE_ID)
    time = next((each for each in found.columns if each.is_time), MESSAGE_TIME)
    columns = [*found.columns, *(each for each in (key, time) if each not in found.columns)]
    day = _unused(f"{time.name.removesuffix('_at').removesuffix('_time')}_date", {each.name for each in columns})
    return found.filled("Enrichment", why=why, keys=[key], columns=columns, time=time.name, day=day)


def _column(field: Field, taken: Iterable[str], values: Sequence[Any], topic: str) -> Column:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", field.name, flags=re.ASCII).lower().strip("_")
    name = _unused(words if NAME.fullmatch(words) else f"{topic}_{words}", taken, topic)
    sql = quoted(field.name)
    if field.ddl == "BIGINT" and are_times(values) and not ID.search(field.name):
        return Column(name=name, sql=f"timestamp_millis({sql})", field=field.name, is_time=True)
    return Column(name=name, sql=sql, field=field.name, is_time=field.ddl.startswith("TIMESTAMP"))


def _listed(columns: Sequence[Column]) -> str:
    """The names of columns as code: a text, or a tuple of several."""
    names = ", ".join(f'"{each.name}"' for each in columns)
    return f"({names})" if len(columns) > 1 else names


def _unused(name: str, taken: Iterable[str], topic: str = "") -> str:
    while name in taken:
        name = f"{topic}_{name}" if topic else f"{name}_"
    return name


def _bytes_of(key: str | None) -> bytes | None:
    """What a message key has in base64; None if it is not in base64."""
    try:
        return b64decode(key or "", validate=True)
    except ValueError:
        return None


def _text_of(kind: str, key: bytes | None) -> str | None:
    """The key of a pair as text, if it is a text or an integer; the bytes of others are not compared."""
    if key is None:
        return None
    is_number = kind.startswith("INT") and len(key) <= 8
    return str(int.from_bytes(key, "big", signed=True)) if is_number else key.decode(errors="replace")


def _pair(payload: bytes | None) -> tuple[bytes | None, bytes | None]:
    """The key and the value of an INLINE pair: each has its length before it, which is -1 if there is none."""
    parts, rest = list[bytes | None](), payload or b""
    for _ in range(2):
        length = struct.unpack(">i", rest[:4])[0] if len(rest) >= 4 else -1
        parts.append(rest[4 : 4 + length] if length >= 0 else None)
        rest = rest[4 + max(length, 0) :]
    key, value = parts
    return key, value


def _json_object(payload: bytes | None) -> Payload | None:
    try:
        value = json.loads(payload or b"null")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
