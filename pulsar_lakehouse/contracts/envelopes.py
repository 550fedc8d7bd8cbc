"""Envelopes: what a tool that replicates a database wraps a row in. The row's columns are the topic's fields.

Metadata of a change are fields, too, under the names that Debezium's "new record state extraction" gives them:
`__op`, `__ts_ms`, `__source_lsn`, `__transaction_id`.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from typing import NamedTuple
from uuid import UUID

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.connect import unwrapped
from pulsar_lakehouse.contracts.values import NotReadableError, Pairs, Value, shown

METADATA = "__"
"""Begins the names of fields that are in the envelope, not in the row."""
OPERATIONS = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""By Debezium's `op`, the part of the envelope that has the row: create, read (in a snapshot), update, delete."""


TRUNCATE = "t"
ROWS = ("before", "after")
PARTS = ("source", "transaction")
"""The objects with metadata in Debezium's envelope."""


class Change(NamedTuple):
    """A change of one row."""

    row: dict[str, Value]
    """The columns, and the metadata that are declared."""
    is_delete: bool
    unavailable: tuple[str, ...] = ()
    """Columns that the message leaves out, because the database did not log their value: they did not change."""
    is_truncation: bool = False
    """Whether all rows of the table are deleted."""


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
        envelope = _as_dict(unwrapped(payload))
        metadata = {name: value for name in names if (value := _metadata(envelope, name)) is not None}
        if "op" not in envelope or not envelope.keys() & {*ROWS, "source"}:
            is_delete = envelope.get("__op") == "d" or envelope.get("__deleted") in (True, "true")
            row = envelope
        else:
            operation = shown(envelope["op"])
            if operation == TRUNCATE:
                return Change(metadata, True, is_truncation=True)
            if operation not in OPERATIONS:
                raise NotReadableError(f"op is none of {', '.join([*OPERATIONS, TRUNCATE])}: {operation}")
            is_delete = operation == "d"
            after = _as_dict(envelope.get(OPERATIONS[operation]) or {})
            row = {name: value for name, value in after.items() if not name.startswith(METADATA)}
            if not row and not is_delete:
                raise NotReadableError(f"op is {operation}, but {OPERATIONS[operation]} is missing")
        left_out = tuple(name for name, value in row.items() if self._is_unavailable(value))
        return Change(row | metadata | dict.fromkeys(left_out), is_delete, left_out)

    def _is_unavailable(self, value: Value) -> bool:
        if isinstance(value, bytes):
            return value == self.unavailable_value.encode()
        if isinstance(value, list | dict) and 0 < len(value) <= len(self.unavailable_value):
            value = shown(value)  # which shortens texts that are longer
        return isinstance(value, str) and value in self._unavailable_texts

    @cached_property
    def _unavailable_texts(self) -> frozenset[str]:
        """What stands for a value that the database did not log, by type, as Debezium's UnchangedToastedPlaceholder."""
        text, data = self.unavailable_value, self.unavailable_value.encode()
        uuid = str(UUID(bytes=md5(data, usedforsecurity=False).digest(), version=3))
        in_json = b64encode(data).decode()
        arrays = ([text], [in_json], [uuid], [*data])
        return frozenset({text, in_json, *map(shown, arrays), shown({text: text})})


def path_of(name: str) -> tuple[str, ...]:
    """Where in the envelope the value is that a field is named after; empty if the field is a column of the row."""
    if not name.startswith(METADATA):
        return ()
    part, _, rest = name.removeprefix(METADATA).partition("_")
    return (part, rest) if part in PARTS and rest else (name.removeprefix(METADATA),)


def _metadata(envelope: Mapping[str, Value], name: str) -> Value:
    value: Value = envelope if (path := path_of(name)) else None
    for part in path:
        value = dict(value).get(part) if isinstance(value, Pairs | dict) else None
    return value


def _as_dict(value: Value) -> dict[str, Value]:
    """The last value of each name, as SQL has one. Raises NotReadableError for what is no object."""
    if isinstance(value, Pairs | dict):
        return dict(value)
    raise NotReadableError(f"no object: {shown(value)}")
