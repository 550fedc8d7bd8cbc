"""Envelopes: what a tool that replicates a database wraps a row in. The row's columns are the topic's fields.

Metadata of a change are fields, too, under the names that Debezium's "new record state extraction" gives them:
`__op`, `__source_lsn`, `__source_ts_ms`. Such a name is the path of a value in the envelope, joined by `_`.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from typing import NamedTuple
from uuid import UUID

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.values import NotReadableError, Pairs, Value, as_text, shown

METADATA = "__"
"""Begins the names of fields that are in the envelope, not in the row."""
OPERATIONS = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""By Debezium's `op`, the part of the envelope that has the row: create, read (in a snapshot), update, delete."""


class Change(NamedTuple):
    """A change of one row."""

    row: dict[str, Value]
    """The columns, and the metadata that are declared."""
    is_delete: bool
    unavailable: tuple[str, ...] = ()
    """Columns that the message leaves out, because the database did not log their value: they did not change."""


@checked
@dataclass(frozen=True, kw_only=True)
class Debezium:
    """Debezium's envelope of a change: `before`, `after`, `op` and `source`.

    It may be wrapped in Kafka Connect's `schema` and `payload`. Topics that "new record state extraction" has unwrapped
    are read as well: `__deleted` or `__op` says which messages delete.
    See https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events
    """

    unavailable_value: str = "__debezium_unavailable_value"
    """Stands for a value that the database did not log, as it did not change: Postgres' TOAST. The column keeps its
    last value. It is the connector's `unavailable.value.placeholder`. Example: `unavailable_value="__unknown"`"""

    def change(self, payload: Value, names: Iterable[str]) -> Change:
        """The change that a payload is; `names` are those of the topic's fields.

        Raises NotReadableError if it is none.
        """
        envelope = _as_dict(without_connect_schema(payload))
        metadata = {name: value for name in names if (value := _metadata(envelope, name)) is not None}
        if "op" not in envelope or not envelope.keys() & OPERATIONS.values():
            is_delete = envelope.get("__op") == "d" or envelope.get("__deleted") in (True, "true")
            row = envelope
        else:
            operation = envelope["op"]
            if operation not in OPERATIONS:
                raise NotReadableError(f"op is none of {', '.join(OPERATIONS)}: {shown(operation)}")
            is_delete = operation == "d"
            row = _as_dict(envelope.get(OPERATIONS[operation]) or {})
            if not row and not is_delete:
                raise NotReadableError(f"op is {operation}, but {OPERATIONS[operation]} is missing")
        left_out = tuple(name for name, value in row.items() if self._is_unavailable(value))
        return Change(row | metadata | dict.fromkeys(left_out), is_delete, left_out)

    def _is_unavailable(self, value: Value) -> bool:
        if isinstance(value, list | dict):
            return len(value) <= len(self.unavailable_value) and as_text(value) in self._unavailable_texts
        return isinstance(value, str | bytes) and as_text(value) in self._unavailable_texts

    @cached_property
    def _unavailable_texts(self) -> frozenset[str]:
        """What stands for a value that the database did not log, by type, as Debezium's UnchangedToastedPlaceholder."""
        text, data = self.unavailable_value, self.unavailable_value.encode()
        uuid = str(UUID(bytes=md5(data, usedforsecurity=False).digest(), version=3))
        in_json = b64encode(data).decode()
        arrays = ([text], [in_json], [uuid], [*data])
        return frozenset({text, in_json, *map(as_text, arrays), as_text({text: text})})


def without_connect_schema(value: Value) -> Value:
    """A value of Kafka Connect's JSON converter without the schema that it may be wrapped in."""
    if isinstance(value, Pairs | dict) and len(value) == 2:
        wrapped = dict(value)
        if wrapped.keys() == {"schema", "payload"}:
            return wrapped["payload"]
    return value


def _metadata(envelope: Mapping[str, Value], name: str) -> Value:
    """The value whose path in the envelope a field is named after; None if it is no metadata, or not there."""
    return _at(envelope, name.removeprefix(METADATA)) if name.startswith(METADATA) else None


def _at(within: Value, path: str) -> Value:
    if not isinstance(within, Pairs | dict):
        return None
    values = dict(within)
    if path in values:
        return values[path]
    below = (name for name in values if path.startswith(f"{name}_"))
    found = (_at(values[name], path.removeprefix(f"{name}_")) for name in below)
    return next((value for value in found if value is not None), None)


def _as_dict(value: Value) -> dict[str, Value]:
    """The last value of each name, as SQL has one. Raises NotReadableError for what is no object."""
    if isinstance(value, Pairs | dict):
        return dict(value)
    raise NotReadableError(f"no object: {shown(value)}")
