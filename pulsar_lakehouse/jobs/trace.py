"""Tell what happened to each message of a key, from the tables, their logs and the checkpoints, without Spark."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa

from pulsar_lakehouse.checkpoints.batches import begun_at
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Encoding
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, Enrichment, Lookup
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.inspection.row_history import Row, RowChange, changes_of_rows
from pulsar_lakehouse.inspection.table_status import batches_of
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.stored import stored_table, table_names

Place = tuple[int, int, int]
"""Ledger, entry and index in the batch of a message. Ledgers are of one partition each."""
PLACE = "ledger_id", "entry_id", "batch_index"


@dataclass(frozen=True, kw_only=True)
class Event:
    at: datetime
    table: str
    version: int | None
    """The version of the table that did this; None if no commit did."""
    message: str
    """The position of the message that it happened to."""
    what: str


def trace_facts(settings: Settings, facts: Enrichment, keys: Sequence[str]) -> list[Event]:
    """The events of all facts with these values of the first key columns, in the order of time.

    Raises ConfigurationError for values that no key can have.
    """
    changes = {name: _with_keys(settings, name, facts, keys, _place_of_fact) for name in facts.places}
    placed = {_place_of_fact(_row(change)) for of_table in changes.values() for change in of_table}
    landed, rejected = _messages(settings, facts, keys, placed)
    in_gold = changes[facts.gold_table]
    tellers: dict[str, Callable[[RowChange], str]] = {
        facts.gold_table: partial(_told_of_gold, settings, facts, _arrivals(settings, facts, in_gold)),
        facts.waiting.name: _told_of_waiting,
        facts.duplicates.name: _told_of_duplicate,
        facts.discarded.name: _told_of_discarded,
    }
    events = [*_landings(landed), *_rejections(rejected)]
    for name, tell in tellers.items():
        events += [_event(change, _position(_row(change)["position"]), tell(change)) for change in changes[name]]
    events += _requests(settings, facts, {_place_of_bronze(_row(change)) for change in landed})
    events += _publications(settings, facts, in_gold)
    return _in_order(events)


def trace_entity(settings: Settings, entity: Entity, keys: Sequence[str]) -> list[Event]:
    """The events of all messages about the keys with these values of the first key columns, in the order of time.

    Raises ConfigurationError for values that no key can have.
    """

    def key_of(row: Row) -> Hashable:
        return tuple(row[name] for name in entity.keys)

    latest = _with_keys(settings, entity.table.name, entity, keys, key_of)
    versions = _with_keys(settings, entity.history.name, entity, keys, _place_of_version)
    placed = {_place_of_version(_row(change)) for change in (*latest, *versions)}
    landed, rejected = _messages(settings, entity, keys, placed)
    known = {_place_of_bronze(_row(change)): _position(_row(change)) for change in landed}
    events = [*_landings(landed), *_rejections(rejected)]
    for tell, changes in ((_told_of_state, latest), (_told_of_version, versions)):
        for change in changes:
            place = _place_of_version(_row(change))
            events.append(_event(change, known.get(place, _slashed(place)), tell(change)))
    return _in_order(events)


def _in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.at)


def _with_keys(
    settings: Settings,
    table: str,
    declared: Enrichment | Entity,
    keys: Sequence[str],
    identity: Callable[[Row], Hashable],
) -> list[RowChange]:
    """The changes of the rows of a table with these values of the first key columns."""
    if len(keys) > len(declared.keys):
        raise ConfigurationError(
            f"{' '.join(keys)}: a key of {declared.topic.name} has only {', '.join(declared.keys)}; "
            "another topic is named by --topic"
        )
    if table not in table_names(settings):
        return []
    schema = pa.schema(stored_table(settings, table).schema().to_arrow())
    names = dict(zip(declared.keys, keys, strict=False))
    values = {f"key{place}": typed(name, key, schema) for place, (name, key) in enumerate(names.items())}
    where = " AND ".join(f'"{name}" = ${value}' for name, value in zip(names, values, strict=True))
    return changes_of_rows(settings, table, where, values, identity=identity)


def typed(column: str, text: str, schema: pa.Schema) -> object:
    """A value of a column, from its text. Raises ConfigurationError if it is none."""
    kind = schema.field(column).type
    try:
        return pa.scalar(text).cast(kind).as_py()
    except pa.ArrowInvalid:
        raise ConfigurationError(f"{text}: {column} is of type {kind}, and this is no value of it") from None


def _messages(
    settings: Settings, declared: Enrichment | Entity, keys: Sequence[str], placed: set[Place]
) -> tuple[list[RowChange], list[RowChange]]:
    """The messages in bronze and among the malformed ones, at these places or with these keys.

    One that is in no other table is found by its message key, if that is the key of an entity, or by the fields of its
    payload, if that is JSON and the key columns are fields of it.
    """
    topic, conditions, values = declared.topic, [], {f"key{place}": key for place, key in enumerate(keys)}
    fields = [declared.columns[name] for name in declared.keys[: len(keys)]]
    if topic.encoding == Encoding.JSON and all(field in topic.fields.names for field in fields):
        payload = "TRY(decode(payload))"
        has = (f"""TRY(json_extract_string({payload}, '$."{field}"')) = $key{at}""" for at, field in enumerate(fields))
        conditions.append(f"({' AND '.join(has)})")
    if isinstance(declared, Entity) and len(declared.keys) == len(keys) == 1:
        conditions.append("key = $key0")
    if not conditions:
        values = {}
    at = ", ".join(_tuple(place) for place in placed)
    of_bronze = [*conditions, *([f"({', '.join(PLACE)}) IN ({at})"] if at else [])]
    in_position = f"({', '.join(f'position.{name}' for name in PLACE)}) IN ({at})"
    of_malformed = f"topic = '{topic.name}' AND ({' OR '.join([*conditions, *([in_position] if at else [])])})"
    if not of_bronze:
        return [], []
    return (
        changes_of_rows(settings, topic.bronze_table, " OR ".join(of_bronze), values, identity=_place_of_bronze),
        changes_of_rows(settings, MALFORMED.name, of_malformed, values, identity=_place_of_fact),
    )


def _tuple(place: Place) -> str:
    return f"({', '.join(map(str, place))})"


def _row(change: RowChange) -> Row:
    row = change.after or change.before
    assert row is not None
    return row


def _place_of_bronze(row: Row) -> Place:
    return row["ledger_id"], row["entry_id"], row["batch_index"]


def _place_of_fact(row: Row) -> Place:
    return _place_of_bronze(row["position"])


def _place_of_version(row: Row) -> Place:
    return _place_of_bronze(row["sequence"])


def _position(row: Row) -> str:
    return _slashed((row["partition"], *_place_of_bronze(row)))


def _slashed(numbers: Iterable[int]) -> str:
    return "/".join(map(str, numbers))


def _event(change: RowChange, message: str, what: str) -> Event:
    before = "already there when the history begins: " if change.is_oldest else ""
    by = f", by {change.reason}" if change.reason and not change.is_oldest else ""
    return Event(at=change.at, table=change.table, version=change.version, message=message, what=before + what + by)


def _landings(landed: Iterable[RowChange]) -> Iterator[Event]:
    for change in landed:
        row = _row(change)
        what = "a tombstone landed" if row["payload"] is None else "landed"
        told = f"{what}, published at {row['publish_time']:%Y-%m-%d %H:%M:%S} by {row['producer']}"
        yield _event(change, _position(row), "removed" if change.after is None else told)


def _rejections(rejected: Iterable[RowChange]) -> Iterator[Event]:
    for change in rejected:
        told = "left quarantine" if change.after is None else f"malformed: {_row(change)['reason']}"
        yield _event(change, _position(_row(change)["position"]), told)


def _told_of_waiting(change: RowChange) -> str:
    row = _row(change)
    keys = ", ".join(f"{each['entity']} {each['key']}" for each in row["missing"] or ())
    if change.after is None:
        return f"no longer waits, after {str(change.at - row['waiting_since']).partition('.')[0]}"
    tried = f"tried {row['attempts']} times, still " if change.before else ""
    return f"{tried}waits for {keys}: {row['reason']}"


def _told_of_duplicate(change: RowChange) -> str:
    first = _position(_row(change)["duplicate_of"])
    return f"no longer a duplicate of {first}" if change.after is None else f"a duplicate of {first}"


def _told_of_discarded(change: RowChange) -> str:
    return (
        "no longer among the discarded"
        if change.after is None
        else f"discarded, as it waited: {_row(change)['reason']}"
    )


def _told_of_gold(
    settings: Settings, facts: Enrichment, arrivals: Mapping[tuple[str, Place], datetime], change: RowChange
) -> str:
    def state(lookup: Lookup, row: Row) -> str:
        if (found := row.get(lookup.name)) is None:
            return f"no {lookup.name}"
        place = _place_of_version(found)
        came = arrivals.get((lookup.entity.name, place))
        at = f", landed {came:%Y-%m-%d %H:%M:%S}" if came else ""
        merged = row.get(lookup.merged) or ()
        via = f", merged from {', '.join(map(str, merged))}" if merged else ""
        key = " ".join(str(found[name]) for name in lookup.entity.keys)
        as_of = f"{found['sequence']['event_time']:%Y-%m-%d %H:%M:%S}"
        return f"{lookup.name} {key} as of {as_of} ({_slashed(place)}{at}{via})"

    before, after, by = change.before, change.after, _backfilled(settings, facts, change)
    if after is None:
        return f"left gold{by}"
    if before is None:
        return f"enriched{by}: {', '.join(state(lookup, after) for lookup in facts.lookups) or 'without lookups'}"
    new = [lookup for lookup in facts.lookups if before.get(lookup.name) != after.get(lookup.name)]
    told = [f"{state(lookup, after)} instead of {state(lookup, before)}" for lookup in new]
    told += [f"another {name}" for name in facts.columns if before.get(name) != after.get(name)]
    return f"corrected{by}: {', '.join(told)}"


def _arrivals(settings: Settings, facts: Enrichment, in_gold: Iterable[RowChange]) -> dict[tuple[str, Place], datetime]:
    """When the states of these rows landed, by entity and place of their message."""
    needed: dict[str, set[Place]] = {}
    for row in (row for change in in_gold for row in (change.before, change.after) if row):
        for lookup in facts.lookups:
            if state := row[lookup.name]:
                needed.setdefault(lookup.entity.topic.name, set()).add(_place_of_version(state))
    found: dict[tuple[str, Place], datetime] = {}
    for topic, places in needed.items():
        at = ", ".join(map(_tuple, places))
        rows = f'SELECT {", ".join(PLACE)}, landed_at FROM bronze."{topic}" WHERE ({", ".join(PLACE)}) IN ({at})'
        found |= {(topic, (row[0], row[1], row[2])): row[3] for row in query(settings, rows).fetchall()}
    return found


def _backfilled(settings: Settings, facts: Enrichment, change: RowChange) -> str:
    """Which backfill did a change, if one did: it commits while its request is open, and before it says `done`."""
    if BACKFILLS.name not in table_names(settings):
        return ""
    done = f"""
        SELECT asked.requested_by, asked.note FROM {BACKFILLS.name} AS asked JOIN {BACKFILLS.name} AS done
        USING (request) WHERE asked.event = 'requested' AND done.event = 'done' AND asked.topic = $topic
        AND $at BETWEEN asked.at AND done.at ORDER BY done.at LIMIT 1
    """
    rows = query(settings, done, {"topic": facts.topic.name, "at": change.at}).fetchall()
    return "".join(
        f" by the backfill of {who}, {at:%Y-%m-%d %H:%M:%S}{f', {note}' * bool(note)}" for who, at, note in rows
    )


def _requests(settings: Settings, facts: Enrichment, places: set[Place]) -> Iterator[Event]:
    """What people requested for these messages."""
    if not places or ACTIONS.name not in table_names(settings):
        return
    wanted = f"({', '.join(f'position.{name}' for name in PLACE)}) IN ({', '.join(map(_tuple, places))})"
    columns = "requested_at, position, action, requested_by, note"
    rows = f"SELECT {columns} FROM {ACTIONS.name} WHERE topic = $topic AND {wanted}"
    for at, position, action, who, note in query(settings, rows, {"topic": facts.topic.name}).fetchall():
        what = f"{action} requested by {who}{f': {note}' if note else ''}"
        yield Event(at=at, table=ACTIONS.name, version=None, message=_position(position), what=what)


def _publications(settings: Settings, facts: Enrichment, in_gold: Sequence[RowChange]) -> Iterator[Event]:
    """When the changes of gold were sent to its topic, as far as the publisher's checkpoint says."""
    topic = facts.publish_to
    since = begun_at(settings, f"published.{topic}")
    if not in_gold or not topic or not since:
        return
    id = str(stored_table(settings, facts.gold_table).metadata().id)
    batches = batches_of(settings, f"published.{topic}")
    first = [change for change in in_gold if change.at < since][-1:]
    for change in (*first, *(change for change in in_gold if change.at >= since)):
        ends = [since] if change.at < since else [at for at, read in batches if read.get(id, -1) >= change.version]
        row = _row(change)
        key = "-".join(str(row[name]) for name in facts.keys)
        what = f"published under the key {key}: {'a tombstone' if change.after is None else 'the row'}"
        if ends:
            yield Event(at=ends[0], table=topic, version=None, message=_position(row["position"]), what=what)


def _told_of_state(change: RowChange) -> str:
    row = _row(change)
    if change.after is None:
        return "removed from the latest state"
    as_of = f"as of {row['sequence']['event_time']:%Y-%m-%d %H:%M:%S}"
    return f"the latest state, deleted {as_of}" if row["deleted_at"] else f"the latest state, {as_of}"


def _told_of_version(change: RowChange) -> str:
    row = _row(change)
    if change.after is None:
        return "removed from the history"
    until = f"until {row['valid_until']:%Y-%m-%d %H:%M:%S}" if row["valid_until"] else "until further notice"
    return f"now valid {until}" if change.before else f"valid from {row['valid_from']:%Y-%m-%d %H:%M:%S} {until}"
