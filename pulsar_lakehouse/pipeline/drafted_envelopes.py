"""The envelope that a topic's messages have, as a tool that replicates a database writes it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulsar_lakehouse.contracts.connect import avro_of, unwrapped, wrapped
from pulsar_lakehouse.contracts.envelopes import METADATA, ROWS
from pulsar_lakehouse.contracts.registered import row_of
from pulsar_lakehouse.contracts.topics import Encoding
from pulsar_lakehouse.contracts.values import NotReadableError
from pulsar_lakehouse.pipeline.field_types import Field, fields_of_payloads, fields_of_record

Payload = dict[str, Any]
POSITIONS = {
    "postgresql": ("lsn",),
    "mysql": ("file", "pos", "row"),
    "mariadb": ("file", "pos", "row"),
    "sqlserver": ("commit_lsn", "change_lsn", "event_serial_no"),
}
"""By Debezium's connector, the parts of `source` that order the changes of a row."""
NO_KEY = "default"
"""The message key with which Debezium Server sends changes that have no key."""
SOURCE = f"{METADATA}source_"
TIME = f"{SOURCE}ts_ms"


@dataclass(frozen=True)
class FoundEnvelope:
    columns: tuple[Field, ...]
    """Those of the row."""
    rows: tuple[tuple[str | None, Payload], ...]
    """The rows of the sample after their changes, with the message keys."""
    position: tuple[Field, ...]
    """What orders the changes of a row; empty if nothing is known."""
    time: Field | None
    """When the database was changed."""


def envelope_of(
    record: Payload, encoding: Encoding, messages: Sequence[tuple[str | None, Payload]]
) -> FoundEnvelope | None:
    """The envelope of a topic with this registered record, or with these payloads; None if there is none."""
    payloads = [(key, value) for key, each in messages if isinstance(value := _plain(each), dict)]
    record = record or next(_records_beside(messages), {})
    names = {each["name"] for each in record.get("fields", ())} or {name for _, each in payloads for name in each}
    if {"op", "after"} <= names and all(
        isinstance(each.get(part), dict | None) for _, each in payloads for part in ROWS
    ):
        rows = tuple((key, row) for key, each in payloads if (row := each.get("after")))
        flat = row_of(record)
    elif names & {f"{METADATA}op", f"{METADATA}deleted"}:
        rows, flat = tuple(payloads), record
    else:
        return None
    sources = [source for _, each in payloads if isinstance(source := each.get("source"), dict)]
    if flat:
        fields = fields_of_record(flat, encoding)
    else:
        metadata = ({f"{SOURCE}{name}": value for name, value in each.items()} for each in sources)
        fields = fields_of_payloads([*(row for _, row in rows), *metadata])
    known = {each.name: each for each in fields}
    connector = next((each.get("connector") for each in sources), None)
    position = POSITIONS.get(connector, ("lsn",)) if isinstance(connector, str) else ("lsn",)
    return FoundEnvelope(
        columns=tuple(each for each in fields if not each.name.startswith(METADATA)),
        rows=rows,
        position=tuple(known[name] for each in position if (name := f"{SOURCE}{each}") in known),
        time=replace(known[TIME], ddl="TIMESTAMP_MILLIS") if TIME in known else None,
    )


def plain_key(key: str | None) -> str | None:
    """A message key without the schema that Connect's converter may have written beside it."""
    if key is None or not key.startswith('{"schema"'):
        return key
    try:
        return json.dumps(_plain(json.loads(key)))
    except ValueError:
        return key


def _plain(value: Any) -> Any:
    """A value without the wrapping of Connect's converter; as it is, if its schema can't be read."""
    try:
        return unwrapped(value)
    except NotReadableError:
        return value


def _records_beside(messages: Sequence[tuple[str | None, Payload]]) -> Iterator[Payload]:
    """The records that Connect's converter wrote beside payloads, the newest first."""
    for _, each in reversed(messages):
        if (found := wrapped(each)) and _plain(each) is not each:
            branches = avro_of(found.schema)
            yield from (one for one in (branches if isinstance(branches, list) else [branches]) if "fields" in one)
