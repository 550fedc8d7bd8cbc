"""Decodes Arrow batches of messages.

Most messages are JSON objects as declared. A parser in C reads those: it takes only what the decoder would take, with
the same values. The decoder reads all others, one by one.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from pulsar_lakehouse.contracts.decoder import Decoded, Decoder, Message
from pulsar_lakehouse.contracts.json_objects import is_deep, parse_value
from pulsar_lakehouse.contracts.parsers import json_parser, may_be_unavailable, parsed_type
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import Encoding, Enum, TimestampMillis, in_spark
from pulsar_lakehouse.contracts.values import Value, read_as

SURROGATE = r"\\u[dD][89a-fA-F]"
"""An escape of half a surrogate pair, of which the parser in C does not look for the other half everywhere."""
PARTS = ("fields", "reason", "key", "is_tombstone", "unavailable", "is_truncation")
NOW = 2**63 - 1
"""Stands for a publish time that bronze has none of: the newest schema of a version counts."""


class BatchDecoder:
    """Decodes batches of one topic's messages."""

    def __init__(self, topic: Topic, key_names: Sequence[Sequence[str]]) -> None:
        self._decoder = Decoder(topic, key_names)
        self._is_json, self._envelope = topic.encoding is Encoding.JSON, topic.envelope
        self._typed_versions = pa.array(self._decoder.typed_versions, pa.int64())
        self._parse = json_parser(topic)
        self._raw = {
            each.name: (read_as(each.dataType), not each.nullable)
            for each in topic.fields
            if parsed_type(each.dataType) is msgspec.Raw
        }
        self._raw_names = [json.dumps(name, ensure_ascii=False).encode() for name in self._raw]
        self._parsed = pa.struct([(each.name, arrow_type(each.dataType, milliseconds="ms")) for each in topic.fields])
        self._fields = pa.struct([(each.name, arrow_type(each.dataType)) for each in topic.fields])

    def decode(
        self, payloads: pa.Array, keys: pa.Array, versions: pa.Array, published: pa.Array, *topics: pa.Array
    ) -> pa.StructArray:
        """Structs of the PARTS of what is decoded; the last two are only in those of a topic with an envelope.

        `topics` are the full names, if the messages are of several.
        """
        rows = self._fast(payloads, versions)
        texts = self._read_keys(rows, keys, versions, published, *topics) if self._decoder.reads_keys else None
        left = [at for at, row in enumerate(rows) if row is None]
        others: dict[int, Decoded] = {}
        if left:
            given = (keys, payloads, versions, published.cast(pa.int64()), *topics)
            of_left = (each.take(pa.array(left)) for each in given)
            for at, message in zip(left, _messages(*of_left), strict=True):
                decoded = others[at] = self._decoder.decode(message)
                rows[at] = decoded.fields
        found = [others.get(at) for at in range(len(rows))]
        columns = [
            pa.array(rows, self._parsed).cast(self._fields),
            pa.array([each and each.reason for each in found], pa.string()),
            self._keys(keys, texts, found),
            pa.array([each is not None and each.is_tombstone for each in found], pa.bool_()),
        ]
        if self._envelope:
            columns.append(pa.array([each and each.unavailable for each in found], pa.list_(pa.string())))
            columns.append(pa.array([each is not None and each.is_truncation for each in found], pa.bool_()))
        return pa.StructArray.from_arrays(columns, PARTS[: len(columns)])

    def _keys(self, keys: pa.Array, texts: list[str | None] | None, found: list[Decoded | None]) -> pa.Array:
        if texts is None and not self._envelope:
            return keys
        given = keys.to_pylist() if texts is None else texts
        return pa.array([each.key if each else key for key, each in zip(given, found, strict=True)], pa.string())

    def _read_keys(
        self,
        rows: list[dict[str, Value] | None],
        keys: pa.Array,
        versions: pa.Array,
        published: pa.Array,
        *topics: pa.Array,
    ) -> list[str | None]:
        """The texts of the keys. A row whose key can't be read, or has what the payload lacks, becomes None."""
        texts: list[str | None] = []
        payloads = pa.nulls(len(keys), pa.binary())
        for at, message in enumerate(_messages(keys, payloads, versions, published.cast(pa.int64()), *topics)):
            text = self._decoder.key_of(message, row) if (row := rows[at]) is not None else None
            texts.append(text)
            if text is None:
                rows[at] = None
        return texts

    def _fast(self, payloads: pa.Array, versions: pa.Array) -> list[dict[str, Value] | None]:
        """The rows of the messages that the parser in C takes; None for others."""
        if not self._is_json:
            return [None] * len(payloads)
        parse, rows, given = self._parse, list[dict[str, Value] | None](), payloads.to_pylist()
        for payload, is_left in zip(given, self._left(payloads, given, versions), strict=True):
            try:
                rows.append(None if is_left else parse(payload))
            except (ValueError, RecursionError):
                rows.append(None)
        return list(map(self._read_raw, rows, given)) if self._raw else rows

    def _left(self, payloads: pa.Array, given: list[bytes | None], versions: pa.Array) -> list[bool]:
        """Which messages are left to the decoder, whatever the parser says. `given` are the payloads in Python."""
        try:
            texts = payloads.cast(pa.string())
        except pa.ArrowInvalid:  # the parser does not look at the bytes of fields that are not declared
            texts = pa.array(map(_utf8, given), pa.string())
        left = texts.is_null()
        if pc.any(pc.match_substring(texts, r"\u")).as_py():
            left = pc.or_(left, pc.fill_null(pc.match_substring_regex(texts, SURROGATE), True))
        if self._envelope:
            left = pc.or_(left, pc.fill_null(pc.match_substring_regex(texts, may_be_unavailable(self._envelope)), True))
        if len(self._typed_versions):
            left = pc.or_(left, pc.is_in(versions, self._typed_versions))
        found: list[bool] = left.to_pylist()
        return [is_left or is_deep(payload or b"") for is_left, payload in zip(found, given, strict=True)]

    def _read_raw(self, row: dict[str, Value] | None, payload: bytes) -> dict[str, Value] | None:
        """The row with the values that the parser did not read; None if one is wrong, or may occur more than once."""
        if row is None or (not self._envelope and self._may_occur_twice(payload)):
            return None
        for name, (read, is_required) in self._raw.items():
            if (raw := row.get(name)) is not None:
                reasons: list[str] = []
                row[name] = read(parse_value(bytes(raw)), name, reasons)
                if reasons or (row[name] is None and is_required):
                    return None
        return row

    def _may_occur_twice(self, payload: bytes) -> bool:
        """Whether a field that the parser did not read may occur more than once; in envelopes, only the last counts."""
        return b"\\u" in payload or any(payload.count(name) > 1 for name in self._raw_names)


@dataclass(frozen=True)
class SparkDecoder:
    """Decodes batches in a Python process of Spark, which makes the decoder when it gets the first batch."""

    topic: Topic
    key_names: tuple[tuple[str, ...], ...]

    @property
    def type(self) -> T.StructType:
        decoded = T.StructType().add("fields", in_spark(self.topic.fields))
        decoded = decoded.add("reason", "string").add("key", "string").add("is_tombstone", "boolean")
        if self.topic.envelope:
            decoded = decoded.add("unavailable", T.ArrayType(T.StringType())).add("is_truncation", "boolean")
        return decoded

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of bronze that `decode` takes."""
        is_by_topic = any(schema.topic for schema in self.topic.schemas)
        return "payload", "key", "schema_version", "publish_time", *(["topic"] if is_by_topic else [])

    def decode(self, *columns: pa.Array) -> pa.Array:
        return self._batches.decode(*columns)

    @cached_property
    def _batches(self) -> BatchDecoder:
        return BatchDecoder(self.topic, self.key_names)


def arrow_type(kind: T.DataType, *, milliseconds: str = "us") -> pa.DataType:
    """The Arrow type of a field; `milliseconds` is the unit of those times."""

    def of(inner: T.DataType) -> pa.DataType:
        return arrow_type(inner, milliseconds=milliseconds)

    match kind:
        case T.StructType():
            return pa.struct([(each.name, of(each.dataType)) for each in kind])
        case T.ArrayType():
            return pa.list_(of(kind.elementType))
        case T.MapType():
            return pa.map_(pa.string(), of(kind.valueType))
        case T.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case TimestampMillis():
            return pa.timestamp(milliseconds, "UTC")
        case T.TimestampType():
            return pa.timestamp("us", "UTC")
    return _LEAVES[type(kind)]


_LEAVES: Mapping[type[T.DataType], pa.DataType] = {
    T.BooleanType: pa.bool_(),
    T.IntegerType: pa.int32(),
    T.LongType: pa.int64(),
    T.DoubleType: pa.float64(),
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    Enum: pa.string(),
    T.DateType: pa.date32(),
}


def _messages(
    keys: pa.Array, payloads: pa.Array, versions: pa.Array, micros: pa.Array, *topics: pa.Array
) -> Iterator[Message]:
    columns = (each.to_pylist() for each in (keys, payloads, versions, micros, *topics))
    for key, payload, version, published, *topic in zip(*columns, strict=True):
        yield Message(key, payload, version, NOW if published is None else published // 1000, *topic)


def _utf8(payload: bytes | None) -> str | None:
    try:
        return None if payload is None else payload.decode()
    except UnicodeDecodeError:
        return None
