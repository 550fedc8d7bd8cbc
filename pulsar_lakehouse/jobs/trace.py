"""Tell what happened to each message of a key, from the tables, their logs and the checkpoints, without Spark."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_lakehouse.access import ITSELF, Reader
from pulsar_lakehouse.checkpoints.batches import begun_at
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Encoding, Topic
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.inspection.row_history import History, Row, RowChange
from pulsar_lakehouse.inspection.table_status import batches_of, read_to_its_end
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.masking import masked_row
from pulsar_lakehouse.tables.stored import Ranges, columns_of, dataset_of, files_within, is_stored, stored_table

Place = tuple[int, int, int]
"""Ledger, entry and index in the batch of a message. Ledgers are of one partition each."""
PLACE = "ledger_id", "entry_id", "batch_index"
WHOLE = -1
"""The row of a message as a whole."""


@dataclass(frozen=True, kw_only=True)
class Event:
    at: datetime
    table: str
    version: int | None
    """The version of the table that did this; None if no commit did."""
    message: str
    """The position of the message that it happened to."""
    what: str


def traceable(pipeline: Pipeline, topic: str) -> Entity | Enrichment:
    """The facts or the entity of a topic; without a name, the only facts or, if there are none, the only entity.

    Raises ConfigurationError if there is no such topic, or several.
    """
    facts = {each.topic.name: each for each in pipeline.enrichments}
    entities = {each.name: each for each in pipeline.entities}
    known: dict[str, Entity | Enrichment] = {**facts, **entities}
    names = ", ".join(known) or "none"
    if topic:
        if topic not in known:
            raise ConfigurationError(f"--topic {topic}: no such facts or entity; there are {names}")
        return known[topic]
    likely: list[Entity | Enrichment] = [*(facts or entities).values()]
    if len(likely) != 1:
        raise ConfigurationError(f"name the topic by --topic: there are {names}")
    return likely[0]


def trace(
    settings: Settings, declared: Enrichment | Entity, keys: Sequence[str], reader: Reader = ITSELF
) -> list[Event]:
    """The events of `trace_facts` or `trace_entity`. Raises LakehouseError if no message of the key has landed.

    Raises ConfigurationError for values that no key can have.
    """
    find = trace_entity if isinstance(declared, Entity) else trace_facts
    if not (events := find(settings, declared, keys, reader)):  # type: ignore[arg-type]
        raise LakehouseError(f"{declared.topic.name} {' '.join(keys)}: no message of this key has landed")
    return events


def trace_facts(settings: Settings, facts: Enrichment, keys: Sequence[str], reader: Reader = ITSELF) -> list[Event]:
    """The events of all facts with these values of the first key columns, in the order of time.

    Raises ConfigurationError for values that no key can have.
    """
    # Before the tables: what is placed from now on is found in bronze, if not where it was placed.
    all_placed = _all_placed(settings, facts)
    changes = {name: _with_keys(settings, name, facts, keys, _identity_of_fact) for name in facts.places}
    placed = {_place_of_fact(_row(change)) for of_table in changes.values() for change in of_table}
    landed, events = _messages(settings, facts, keys, placed, reader, since=all_placed)
    in_gold = changes[facts.gold_table]
    tellers: dict[str, Callable[[RowChange], str]] = {
        facts.gold_table: partial(
            _told_of_gold, facts, _arrivals(settings, facts, in_gold), _backfills(settings, facts)
        ),
        facts.waiting.name: _told_of_waiting,
        facts.duplicates.name: _told_of_duplicate,
        facts.discarded.name: _told_of_discarded,
    }
    for name, tell in tellers.items():
        events += [_event(change, position(_row(change)["position"]), tell(change)) for change in changes[name]]
    events += _requests(settings, facts, {_place_of_bronze(_row(change)) for change in landed})
    events += _publications(settings, facts, in_gold)
    return sorted(events, key=lambda event: (event.at, event.message))


def trace_entity(settings: Settings, entity: Entity, keys: Sequence[str], reader: Reader = ITSELF) -> list[Event]:
    """The events of all messages about the keys with these values of the first key columns, in the order of time.

    Raises ConfigurationError for values that no key can have.
    """

    def key_of(row: Row) -> Hashable:
        return tuple(row[name] for name in entity.keys)

    latest = _with_keys(settings, entity.table.name, entity, keys, key_of)
    versions = _with_keys(settings, entity.history.name, entity, keys, _identity_of_version)
    placed = {_place_of_version(_row(change)) for change in (*latest, *versions)}
    landed, events = _messages(settings, entity, keys, placed, reader)
    known = {_place_of_bronze(_row(change)): position(_row(change)) for change in landed}
    for tell, changes in ((_told_of_state, latest), (_told_of_version, versions)):
        for change in changes:
            place = _place_of_version(_row(change))
            events.append(_event(change, known.get(place, _slashed(place)), tell(change)))
    return sorted(events, key=lambda event: (event.at, event.message))


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
    if not is_stored(settings, table):
        return []
    columns = dict(zip(declared.keys, keys, strict=False))
    where, values = has_values(columns, columns_of(stored_table(settings, table)))
    near = {column: (value, value) for column, value in zip(columns, values.values(), strict=True)}
    return History(settings, table).changes(where, values, identity=identity, near=near)


def has_values(texts: Mapping[str, str], schema: pa.Schema) -> tuple[str, dict[str, object]]:
    """The condition that columns have the values that these texts stand for, and its parameters.

    Raises ConfigurationError for a text that is no value of its column.
    """
    values: dict[str, object] = {}
    for place, (column, text) in enumerate(texts.items()):
        kind = schema.field(column).type
        try:
            values[f"key{place}"] = pa.scalar(text).cast(kind).as_py()
        except pa.ArrowInvalid:
            raise ConfigurationError(f"{text}: {column} is of type {kind}, and this is no value of it") from None
    return " AND ".join(f'"{column}" = ${value}' for column, value in zip(texts, values, strict=True)), values


def _all_placed(settings: Settings, facts: Enrichment) -> int:
    """The last version of bronze of which each message is in a table of facts, or malformed; -1 if none surely is."""
    if not facts.topic.is_plain:  # others can have no rows
        return -1
    return read_to_its_end(settings, facts.gold_table, facts.topic.bronze_table)


def _messages(
    settings: Settings,
    declared: Enrichment | Entity,
    keys: Sequence[str],
    placed: set[Place],
    reader: Reader,
    *,
    since: int = -1,
) -> tuple[list[RowChange], list[Event]]:
    """The messages in bronze at these places or with these keys, and what happened to them there or in quarantine.

    One that is in no other table is found by its message key, if that is the key of an entity, or by the fields of its
    payload, if that is JSON and the key columns are fields of it; but not where a topic has several kinds. Of bronze,
    only the commits after the version `since` have such messages.
    """
    topic, conditions = declared.topic, []
    fields = [declared.columns[name] for name in declared.keys[: len(keys)]]
    if topic.encoding == Encoding.JSON and all(field in topic.fields.names for field in fields):
        payload = "TRY(decode(payload))"
        has = (f"""TRY(json_extract_string({payload}, '$."{field}"')) = $key{at}""" for at, field in enumerate(fields))
        conditions.append(f"({' AND '.join(has)})")
    if isinstance(declared, Entity) and len(declared.keys) == len(keys) == 1 and not topic.rows:
        conditions.append("key = $key0")
    values = {f"key{place}": key for place, key in enumerate(keys)} if conditions else {}
    in_malformed = f"topic = '{topic.name}' AND ({' OR '.join([*conditions, _is_at(placed, 'position.')])})"
    rejected = History(settings, MALFORMED.name).changes(in_malformed, values, identity=_identity_of_fact)
    placed = placed | {_place_of_fact(_row(change)) for change in rejected}
    bronze = History(settings, topic.bronze_table)
    if conditions and not topic.where:  # other kinds have these fields and keys, too
        found = bronze.rows_added_after(since, " OR ".join(conditions), values)
        placed |= {_place_of_bronze(row) for row in found}
    landed = bronze.changes(_is_at(placed), {}, identity=_place_of_bronze, near=_around(placed)) if placed else []
    events = [_event(change, position(_row(change)), _told_of_landed(topic, change)) for change in landed]
    events += [
        _event(change, _position_in_quarantine(_row(change)), _told_of_malformed(_masked(change, reader)))
        for change in rejected
    ]
    return landed, events


def _masked(change: RowChange, reader: Reader) -> RowChange:
    paths = reader.masked(change.table)
    before, after = (row and masked_row(row, paths) for row in (change.before, change.after))
    return replace(change, before=before, after=after)


def _is_at(places: Iterable[Place], within: str = "") -> str:
    """The condition that a row is of a message at one of these places. `within` is a struct with the columns."""
    columns = ", ".join(f"{within}{name}" for name in PLACE)
    listed = ", ".join(f"({', '.join(map(str, place))})" for place in places)
    return f"({columns}) IN ({listed})" if listed else "false"


def _around(places: Iterable[Place]) -> Ranges:
    """The lowest and the highest of each part of the places; there must be one."""
    parts = zip(PLACE, zip(*places, strict=True), strict=True)
    return {name: (min(values), max(values)) for name, values in parts}


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


def _identity_of_fact(row: Row) -> Hashable:
    """What tells a fact or a malformed message from others: also its place, if its message has many rows."""
    return _place_of_fact(row), row["position"].get("row"), row.get("row")


def _identity_of_version(row: Row) -> Hashable:
    return _place_of_version(row), row["sequence"].get("row")


def position(row: Row) -> str:
    """The place of a message as people see it: `partition/ledger/entry/index in its batch`, and that of a row in it."""
    place = _slashed((row["partition"], *_place_of_bronze(row)))
    return place if row.get("row") in (None, WHOLE) else f"{place} row {row['row']}"


def _position_in_quarantine(row: Row) -> str:
    return position({**row["position"], "row": row.get("row")})


def _slashed(numbers: Iterable[int]) -> str:
    return "/".join(map(str, numbers))


def _event(change: RowChange, message: str, what: str) -> Event:
    before = "already there when the history begins: " if change.is_oldest else ""
    by = f", by {change.reason}" if change.reason and not change.is_oldest else ""
    return Event(at=change.at, table=change.table, version=change.version, message=message, what=before + what + by)


def _told_of_landed(topic: Topic, change: RowChange) -> str:
    if change.after is None:
        return "removed"
    if change.before:
        return "decrypted"
    what = "a tombstone landed" if change.after["payload"] is None else "landed"
    what += f" from {change.after['topic'].rpartition('/')[2]}" if topic.is_several else ""
    return f"{what}, published at {change.after['publish_time']:%Y-%m-%d %H:%M:%S} by {change.after['producer']}"


def _told_of_malformed(change: RowChange) -> str:
    return f"malformed: {change.after['reason']}" if change.after else "left quarantine"


def _told_of_waiting(change: RowChange) -> str:
    row = _row(change)
    if change.after is None:
        return f"no longer waits, after {str(change.at - row['waiting_since']).partition('.')[0]}"
    tried = f"tried {row['attempts']} times, still " if change.before else ""
    return f"{tried}{told_of_missing(row)}"


def told_of_missing(row: Row) -> str:
    """For what a fact waits, and why."""
    keys = ", ".join(map(_awaited, row["missing"] or ()))
    return f"waits for {keys}: {row['reason']}"


def _awaited(state: Row) -> str:
    """A state that a fact waits for. Without a key, the last row that led to it has none."""
    if state["key"] is not None or not state["via"]:
        return f"{state['entity']} {state['key']}"
    last = state["via"][-1]
    return f"{state['entity']}, of whom {last['entity']} {last['key']} names none"


def _told_of_duplicate(change: RowChange) -> str:
    first = position(_row(change)["duplicate_of"])
    return f"no longer a duplicate of {first}" if change.after is None else f"a duplicate of {first}"


def _told_of_discarded(change: RowChange) -> str:
    return f"discarded, as it waited: {change.after['reason']}" if change.after else "no longer among the discarded"


Arrivals = Mapping[tuple[str, Place], datetime]
"""When the states of facts landed, by bronze table and place of their message."""


Backfill = tuple[datetime, datetime, str, str | None]
"""When it was asked for, when it was done, by whom, and why."""


def _told_of_gold(facts: Enrichment, arrivals: Arrivals, backfills: Iterable[Backfill], change: RowChange) -> str:
    def state(join: Lookup | Match, row: Row) -> str:
        rows = _rows_in(join, row)
        return " and ".join(one(join, found, row) for found in rows) or f"no {join.name}"

    def one(lookup: Lookup | Match, found: Row, row: Row) -> str:
        place = _place_of_version(found)
        came = arrivals.get((lookup.entity.topic.landing_name, place))
        at = f", landed {came:%Y-%m-%d %H:%M:%S}" if came else ""
        merged = (row.get(lookup.merged) if isinstance(lookup, Lookup) else None) or ()
        via = f", merged from {', '.join(map(str, merged))}" if merged else ""
        key = " ".join(str(found[name]) for name in lookup.entity.keys)
        as_of = f"{found['sequence']['event_time']:%Y-%m-%d %H:%M:%S}"
        return f"{lookup.name} {key} as of {as_of} ({_slashed(place)}{at}{via})"

    before, after, by = change.before, change.after, _backfilled(backfills, change)
    if after is None:
        return f"left gold{by}"
    if before is None:
        return f"enriched{by}: {', '.join(state(join, after) for join in facts.joins) or 'without lookups'}"
    new = [join for join in facts.joins if before.get(join.name) != after.get(join.name)]
    told = [f"{state(join, after)} instead of {state(join, before)}" for join in new]
    told += [f"another {name}" for name in facts.columns if before.get(name) != after.get(name)]
    return f"corrected{by}: {', '.join(told)}"


def _rows_in(join: Lookup | Match, row: Row) -> list[Row]:
    """What a row of gold has of a join, perhaps nothing."""
    found = row.get(join.name)
    return found or [] if isinstance(join, Match) and join.each == "all" else [found] if found else []


def _arrivals(settings: Settings, facts: Enrichment, in_gold: Iterable[RowChange]) -> Arrivals:
    needed: dict[str, set[Place]] = {}
    for row in (row for change in in_gold for row in (change.before, change.after) if row):
        for join in facts.joins:
            for state in _rows_in(join, row):
                needed.setdefault(join.entity.topic.landing_name, set()).add(_place_of_version(state))
    found: dict[tuple[str, Place], datetime] = {}
    for topic, places in needed.items():
        table = stored_table(settings, f"bronze.{topic}")
        ledgers, entries, _ = (set(parts) for parts in zip(*places, strict=True))
        is_near = pc.field("ledger_id").isin(ledgers) & pc.field("entry_id").isin(entries)
        near = dataset_of(table, files_within(table, _around(places)))
        rows = near.to_table(columns=[*PLACE, "landed_at"], filter=is_near).to_pylist()
        found |= {(topic, place): row["landed_at"] for row in rows if (place := _place_of_bronze(row)) in places}
    return found


def _backfills(settings: Settings, facts: Enrichment) -> list[Backfill]:
    if not is_stored(settings, BACKFILLS.name):
        return []
    done = f"""
        SELECT asked.at, done.at, asked.requested_by, asked.note
        FROM {BACKFILLS.name} AS asked JOIN {BACKFILLS.name} AS done USING (request)
        WHERE asked.event = 'requested' AND done.event = 'done' AND asked.topic = $topic ORDER BY done.at
    """
    return query(settings, done, {"topic": facts.topic.name}).fetchall()


def _backfilled(backfills: Iterable[Backfill], change: RowChange) -> str:
    """Which backfill did a change, if one did: it commits while its request is open, and before it says `done`."""
    for asked_at, done_at, who, note in backfills:
        if asked_at <= change.at <= done_at:
            return f" by the backfill of {who}, {asked_at:%Y-%m-%d %H:%M:%S}" + (f", {note}" if note else "")
    return ""


def _requests(settings: Settings, facts: Enrichment, places: set[Place]) -> Iterator[Event]:
    """What people requested for these messages."""
    if not places or not is_stored(settings, ACTIONS.name):
        return
    row = "row" if "row" in columns_of(stored_table(settings, ACTIONS.name)).names else "NULL AS row"
    columns, wanted = f"requested_at, position, {row}, action, requested_by, note", _is_at(places, "position.")
    rows = f"SELECT {columns} FROM {ACTIONS.name} WHERE topic = $topic AND {wanted}"
    for at, place, number, action, who, note in query(settings, rows, {"topic": facts.topic.name}).fetchall():
        what = f"{action} requested by {who}{f': {note}' if note else ''}"
        yield Event(at=at, table=ACTIONS.name, version=None, message=position({**place, "row": number}), what=what)


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
            yield Event(at=ends[0], table=topic, version=None, message=position(row["position"]), what=what)


def _told_of_state(change: RowChange) -> str:
    if change.after is None:
        return "removed from the latest state"
    ends = change.after["deleted_at"]
    deleted = "deleted " if ends and ends <= change.at else ""
    return f"the latest state, {deleted}as of {change.after['sequence']['event_time']:%Y-%m-%d %H:%M:%S}"


def _told_of_version(change: RowChange) -> str:
    row = change.after
    if row is None:
        return "removed from the history"
    until = f"until {row['valid_until']:%Y-%m-%d %H:%M:%S}" if row["valid_until"] else "until further notice"
    return f"now valid {until}" if change.before else f"valid from {row['valid_from']:%Y-%m-%d %H:%M:%S} {until}"
