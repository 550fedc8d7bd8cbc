"""How the messages of a topic that nobody has declared tell their key: as its schema says, or as they look."""

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulsar_lakehouse.contracts.registered import KEY, PRIMITIVES, part_of, record_of
from pulsar_lakehouse.contracts.schemas import RegisteredSchema
from pulsar_lakehouse.contracts.topics import Encoding, KeyEncoding
from pulsar_lakehouse.pipeline.field_types import Field, fields_of_payloads, fields_of_record

Pairs = Sequence[tuple[Any, Mapping[str, Any]]]
"""Keys, each with the payload of its message."""
NUMBERS = ("INT", "BIGINT")
PARTS = ("STRING", "BOOLEAN", "DATE", *NUMBERS)
"""The types that a key of several fields can have."""


@dataclass(frozen=True)
class FoundKey:
    fields: tuple[Field, ...]
    """Those of the payload, or of the key alone."""
    encoding: KeyEncoding = KeyEncoding.TEXT
    is_single: bool = False
    """Whether the message key is one value, which no field has."""

    @property
    def is_usable(self) -> bool:
        """Whether an entity can have this key."""
        kinds = {each.ddl.partition("(")[0] for each in self.fields}
        return kinds <= {*PARTS, *(["DECIMAL", "DOUBLE"] if len(self.fields) == 1 else [])}


def key_of_schema(schema: RegisteredSchema, fields: Sequence[Field], pairs: Pairs) -> FoundKey | None:
    """The key that a KeyValue schema tells. One that is no record is the field that it equals, or no field."""
    key = part_of(schema, KEY)
    if record := record_of(key):
        known = {each.name: each for each in fields}
        of_key = fields_of_record(record, Encoding(key.type))
        return FoundKey(tuple(known.get(each.name, replace(each, is_required=False)) for each in of_key))
    if key.type not in PRIMITIVES:
        return None
    if equal := _equal(fields, pairs):
        return FoundKey((equal,))
    return FoundKey((Field(name=KEY, ddl=PRIMITIVES[key.type], seen=key.type),), is_single=True)


def key_of_messages(keys: Sequence[str], fields: Sequence[Field], pairs: Pairs) -> FoundKey | None:
    """The key of messages with these keys, which may be in base64. `pairs` are those whose payload is JSON."""
    if found := _of_texts(keys, fields, pairs):
        return found
    texts = {key: _decoded(key) for key in keys}
    if None in texts.values():
        return None
    found = _of_texts([text or "" for text in texts.values()], fields, [(texts[key], row) for key, row in pairs])
    return replace(found, encoding=KeyEncoding.BYTES) if found else None


def _of_texts(keys: Sequence[str], fields: Sequence[Field], pairs: Pairs) -> FoundKey | None:
    """The key whose values are written like this: as text, as a JSON array, or as a JSON object."""
    if equal := _equal(fields, pairs):
        return FoundKey((equal,))
    values = [_json(key) for key in keys]
    if values and all(isinstance(value, dict) and value for value in values):
        return _of_objects(values, fields, pairs)
    if pairs and all(isinstance(value, list) and len(value) == len(values[0]) > 1 for value in values):
        parts = [_equal(fields, [(_json(key)[at], row) for key, row in pairs]) for at in range(len(values[0]))]
        return FoundKey(tuple(part for part in parts if part)) if all(parts) else None
    return None if pairs else _named_id(keys, fields)


def _of_objects(objects: Sequence[Mapping[str, Any]], fields: Sequence[Field], pairs: Pairs) -> FoundKey | None:
    """The key whose fields these objects have, if the payloads have no other values of them."""
    known, names = {each.name: each for each in fields}, [*objects[0]]
    of_key = {each.name: each for each in fields_of_payloads(objects)}
    is_same = all(sorted(each) == sorted(names) for each in objects)
    agree = all(row.get(name, value) == value for key, row in pairs for name, value in _json(key).items())
    found = tuple(known.get(name, of_key[name]) for name in names)
    return FoundKey(found, KeyEncoding.JSON) if is_same and agree else None


def _equal(fields: Sequence[Field], pairs: Pairs) -> Field | None:
    """The first field that has the value of the key in each payload."""
    equal = (each for each in fields if all(_text(row.get(each.name)) == _text(key) for key, row in pairs))
    return next(equal, None) if pairs else None


def _named_id(keys: Sequence[str], fields: Sequence[Field]) -> FoundKey | None:
    """A guess, where payloads are not JSON: the field that is named id, if the keys can be its values."""
    found = next((each for each in fields if each.name.lower() == "id"), None)
    are_alike = found and (found.ddl not in NUMBERS or all(re.fullmatch(r"-?\d+", key) for key in keys))
    return FoundKey((found,)) if found and are_alike else None


def _decoded(key: str) -> str | None:
    """The text that is in base64; None if it is none."""
    try:
        return b64decode(key, validate=True).decode()
    except ValueError:
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    """A value as message keys have it, if they can."""
    return str(value) if type(value) in (str, int) else None
