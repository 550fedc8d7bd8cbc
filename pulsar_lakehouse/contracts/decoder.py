"""Decodes messages by their topic's contract: a message in; its fields, or the reason why it is malformed, out.

A message is read as the schema says that it was sent with; without one, as the topic is declared.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from pyspark.sql.types import StructField, StructType

from pulsar_lakehouse.contracts.avro import AvroReader
from pulsar_lakehouse.contracts.avro_schemas import record_name
from pulsar_lakehouse.contracts.connect import unwrapped
from pulsar_lakehouse.contracts.decimals import reader_by_avro
from pulsar_lakehouse.contracts.envelopes import METADATA, Change
from pulsar_lakehouse.contracts.json_objects import TOO_DEEP, parse_object, parse_object_or_array
from pulsar_lakehouse.contracts.message_keys import key_object, parse_text_or_object, split, text_of_key
from pulsar_lakehouse.contracts.primitives import PRIMITIVES, parse_primitive
from pulsar_lakehouse.contracts.protobuf import protobuf_reader
from pulsar_lakehouse.contracts.registered import KEY, VALUE, part_of
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import Encoding, KeyEncoding
from pulsar_lakehouse.contracts.values import NotReadableError, Pairs, Read, Value, not_utf8, read_fields, shown

SELF_DESCRIBING = (Encoding.JSON, Encoding.STRING, Encoding.BYTES)
"""Payloads that can be read without a schema."""
UNTYPED = ("STRING", "BYTES", "NONE")
"""Schemas that leave open what is in the text or the bytes: the declaration says it."""
SKEW = 60_000
"""Milliseconds by which a producer's clock may be behind the broker's."""

Parse = Callable[[bytes], Value]


class Message(NamedTuple):
    key: str | None
    payload: bytes | None
    version: int | None
    """Of the schema; None if it was sent without one."""
    published: int
    """Epoch milliseconds."""
    topic: str = ""
    """Its full name, if messages of several topics are decoded."""


class Decoded(NamedTuple):
    fields: dict[str, Value] | None
    """Without the values that are wrong; None for what can't be read at all.

    A tombstone has none either, unless an envelope says more of the delete: then these are its key and metadata."""
    reason: str | None
    key: str | None
    """The text of the row's key."""
    is_tombstone: bool
    unavailable: tuple[str, ...] = ()
    """Fields that the message leaves out because they did not change; only in an envelope."""
    is_truncation: bool = False
    """Whether it deletes all rows; only in an envelope. It has no key."""


class _Form(NamedTuple):
    """How the messages of a schema are written."""

    kind: str
    parse: Parse
    key: Parse | None = None
    """Of a KeyValue."""
    is_inline: bool = False


class Decoder:
    """Decodes the messages of one topic."""

    def __init__(self, topic: Topic, key_names: Sequence[Sequence[str]] = ()) -> None:
        """`key_names` are the names that each part of the key can have in a message key that is an object."""
        self._topic, self._key_names = topic, key_names
        self._read = read_fields(topic.fields)
        self._parse_json: Parse = parse_object_or_array if topic.is_array else parse_object
        self._readers: dict[tuple[str, ...], Read] = {}
        """By the names of fields that may be missing though they are required."""
        self._forms: dict[int | None, _Form] = {}
        self._schemas: dict[tuple[str, int], list[RegisteredSchema]] = {}
        self._newest: dict[tuple[str, str], str] = {}
        """The newest schema of Avro, by topic and, if that has kinds, by record."""
        for schema in sorted(topic.schemas, key=lambda each: (each.registered_at, each.version)):
            self._schemas.setdefault((schema.topic, schema.version), []).append(schema)
            if schema.type == Encoding.AVRO:
                self._newest[self._line_of(schema)] = schema.data

    @property
    def typed_versions(self) -> list[int]:
        """The versions of schemas other than those of plain JSON payloads."""
        return sorted({each.version for each in self._topic.schemas if not _is_plain_json(each)})

    @property
    def reads_keys(self) -> bool:
        """Whether the text of a row's key is not that of the message key."""
        is_pair = any(each.type == "KEY_VALUE" for each in self._topic.schemas)
        return is_pair or self._topic.key_encoding is not KeyEncoding.TEXT

    def key_of(self, message: Message, row: Mapping[str, Value]) -> str | None:
        """The text of the key of a message that is this row; None if it has none, can't be read, or has more fields."""
        try:
            given = self._given_key(message, self._form_of(message))
            lacks = isinstance(given, Pairs | dict) and any(name not in row for name in dict(given))
            return None if lacks else self._text_of_key(given)
        except (NotReadableError, RecursionError):
            return None

    def _given_key(self, message: Message, form: _Form) -> Value:
        if not form.key:
            given = key_object(message.key, self._topic.key_encoding)
        else:
            first, _ = split(message.payload, message.key, is_inline=form.is_inline)
            given = None if first is None else form.key(first)
        return unwrapped(given) if self._topic.envelope else given

    def decode(self, message: Message) -> Decoded:
        key = message.key
        try:
            form = self._form_of(message)
            payload, given = message.payload, self._given_key(message, form)
            if form.is_inline:
                _, payload = split(payload, key, is_inline=True)
            key = self._text_of_key(given)
            if payload is None or (not payload and form.kind not in (Encoding.STRING, Encoding.BYTES)):
                return Decoded(None, None, key, True)
            value, reasons = form.parse(payload), list[str]()
            if self._topic.envelope:
                return self._changed(self._topic.envelope.change(value, self._topic.fields.names), given, key)
            fields = self._read(self._object(value, given), "", reasons)
        except NotReadableError as error:
            return Decoded(None, str(error), key, False)
        except RecursionError:
            return Decoded(None, TOO_DEEP, key, False)
        return Decoded(fields, "; ".join(reasons) or None, key, False)

    def _changed(self, change: Change, key: Value, text: str | None) -> Decoded:
        """What an envelope says. Of a deleted row, only the key is known: databases log the other columns at will."""
        row, reasons = change.row, list[str]()
        if change.is_truncation:
            key, text = None, None  # Debezium Server writes one all the same
        if change.is_delete:
            of_key = {name for names in self._key_names for name in names}
            row = {name: value for name, value in row.items() if name in of_key or name.startswith(METADATA)}
        optional = tuple(self._topic.fields.names) if change.is_delete else change.unavailable
        fields = self._reader(optional)(self._object(row, key), "", reasons)
        return Decoded(fields, "; ".join(reasons) or None, text, *change[1:])

    def _reader(self, optional: tuple[str, ...]) -> Read:
        if optional not in self._readers:
            fields = (
                StructField(each.name, each.dataType, each.nullable or each.name in optional)
                for each in self._topic.fields
            )
            self._readers[optional] = read_fields(StructType([*fields]))
        return self._readers[optional]

    def _text_of_key(self, given: Value) -> str | None:
        try:
            return text_of_key(given, self._key_names)
        except (UnicodeEncodeError, UnicodeDecodeError) as error:
            raise NotReadableError(f"message key is {not_utf8(error)}") from None

    def _object(self, value: Value, key: Value) -> Value:
        """The fields of a payload, and those that only the key's object has; of a single value, the one field."""
        if not isinstance(value, Pairs | dict):
            names = self._topic.fields.names
            if len(names) > 1:
                raise NotReadableError(f"one value, where {len(names)} fields are declared: {shown(value)}")
            return {names[0]: value}
        if not isinstance(key, Pairs | dict):
            return value
        own = dict(value)
        lacked = [(name, each) for name, each in dict(key).items() if name not in own]
        return Pairs([*value, *lacked]) if isinstance(value, Pairs) else {**own, **dict(lacked)}

    def _form_of(self, message: Message) -> _Form:
        try:
            schema = self._schema_of(message)
            made = id(schema) if schema else None
            if made not in self._forms:
                self._forms[made] = self._new_form(schema)
            return self._forms[made]
        except NotReadableError as error:
            return _Form(self._topic.encoding, partial(_refuse, str(error)))  # a tombstone needs no schema
        except ValueError as error:
            return _Form(
                self._topic.encoding, partial(_refuse, f"schema version {message.version} can't be read: {error}")
            )

    def _schema_of(self, message: Message) -> RegisteredSchema | None:
        """The schema that a message was sent with. Versions begin again at 0 if a topic's schema is made anew."""
        if message.version is None:
            return None
        known = self._schemas.get((message.topic, message.version), [])
        at = bisect_right(known, message.published + SKEW, key=lambda each: each.registered_at)
        if at:
            return known[at - 1]
        if known:
            raise NotReadableError(f"schema version {message.version} was registered anew since, so its own is unknown")
        if self._topic.encoding in SELF_DESCRIBING:
            return None
        raise NotReadableError(f"unknown schema version: {message.version}")

    def _line_of(self, schema: RegisteredSchema) -> tuple[str, str]:
        """What the schemas have in common of which one became the other: the kinds of a topic do not."""
        return schema.topic, record_name(schema.data) if self._topic.where else ""

    def _new_form(self, schema: RegisteredSchema | None) -> _Form:
        if schema and schema.type == "KEY_VALUE":
            form, key = self._new_form(part_of(schema, VALUE)), part_of(schema, KEY)
            parse_key = parse_text_or_object if key.type in UNTYPED else self._new_form(key).parse
            return form._replace(key=parse_key, is_inline=schema.properties.get("kv.encoding.type") != "SEPARATED")
        kind = self._topic.encoding if schema is None or schema.type in UNTYPED else schema.type
        match kind:
            case Encoding.JSON:
                return _Form(
                    kind, _json_parser(schema, parse_object_or_array if self._topic.is_array else parse_object)
                )
            case Encoding.AVRO if schema:
                return _Form(kind, AvroReader(schema, self._newest.get(self._line_of(schema), "")).read)
            case Encoding.PROTOBUF | Encoding.PROTOBUF_NATIVE if schema:
                return _Form(kind, protobuf_reader(schema))
            case _ if kind in PRIMITIVES:
                return _Form(kind, partial(parse_primitive, kind=kind))
        raise NotReadableError("no schema version" if schema is None else f"a schema of type {kind} is not supported")


def _is_plain_json(schema: RegisteredSchema) -> bool:
    """Whether payloads are JSON objects that need nothing else of their schema."""
    if schema.type == "KEY_VALUE" and schema.properties.get("kv.encoding.type") != "SEPARATED":
        return False
    value = part_of(schema, VALUE)
    return value.type in UNTYPED or (value.type == Encoding.JSON and _json_parser(value) is parse_object)


def _json_parser(schema: RegisteredSchema | None, parse: Parse = parse_object) -> Parse:
    read = reader_by_avro(schema.data) if schema and schema.type == Encoding.JSON and schema.data else None
    return (lambda payload: read(parse(payload))) if read else parse


def _refuse(reason: str, _: bytes) -> Value:
    raise NotReadableError(reason)
