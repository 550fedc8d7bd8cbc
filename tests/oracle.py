"""What the tables must hold, in plain Python: the meaning of the pipeline without its machinery.

It leaves out what depends on the clock (retry and duplicate days, purges) and manual commands.

`Oracle.run` takes messages in rounds, as `lakehouse run` does: it lands them all, merges them all, then enriches.
Its state is the versions of each user and item, from which the tables are computed.
Rows are dicts, like those of the real tables from `tests.lake.read`. `landed` turns bronze rows into messages.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tests.oracle_kinds import Kind
from tests.oracle_kinds import names_of as kinds_of
from tests.oracle_lookups import JOINS, REASONS, Join, Match, Row, Versions, awaited, found, names_of, text_of, waits

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATER = datetime(2100, 1, 1, tzinfo=UTC)
"""A time after that of all messages."""

# The contracts: the type of each field, with "!" if it is required. Times are in epoch milliseconds.
CONTRACTS: Mapping[str, Mapping[str, str]] = {
    "users": {
        "id": "long!",
        "firstName": "string",
        "lastName": "string",
        "emailAddress": "string",
        "createdAt": "time!",
        "deletedAt": "time",
        "mergedAt": "time",
        "parentUserId": "long",
    },
    "items": {
        "id": "long!",
        "createdAt": "time!",
        "adjective": "string",
        "category": "string",
        "modifier": "string",
        "name": "string",
        "price": "double!",
    },
    "orders": {
        "invoiceId": "long!",
        "lineItemId": "long!",
        "userId": "long!",
        "itemId": "long!",
        "itemName": "string",
        "itemCategory": "string",
        "price": "double!",
        "createdAt": "time!",
        "paidAt": "time",
    },
}
JSON_TYPES: Mapping[str, tuple[type, ...]] = {"long": (int,), "time": (int,), "double": (int, float), "string": (str,)}
LONGS = range(-(2**63), 2**63)
LAST_TIME = 253_402_300_799_999
TIMES = range(-62_135_596_800_000, LAST_TIME + 1)

DEEPEST = 1000
"""Levels of nesting: a payload with more is malformed."""
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * DEEPEST))
sys.set_int_max_str_digits(0)


class Position(NamedTuple):
    partition: int
    ledger_id: int
    entry_id: int
    batch_index: int


class RowPosition(NamedTuple):
    """Of an element of a message's array; -1 stands for the message as a whole."""

    partition: int
    ledger_id: int
    entry_id: int
    batch_index: int
    row: int


class Message(NamedTuple):
    topic: str
    position: Position
    key: str | None
    payload: bytes | None
    event_time: datetime | None
    publish_time: datetime
    properties: tuple[tuple[str, str], ...] = ()


Calls = Callable[[Row], Row]


@dataclass
class Oracle:
    joins: Sequence[Join] = JOINS
    """The lookups of orders, in order."""
    matches: Sequence[Match] = ()
    """Their interval joins."""
    sequence_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By entity, the columns that order its messages before their event time does."""
    ignoring: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By entity, the columns that keep their value where a message has NULL."""
    occurred_at: Mapping[str, str] = field(default_factory=dict)
    """By entity, the field with the time of the change, which counts before that of the message."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By entity, the columns of its key, if they are not `id`."""
    functions: Mapping[str, Calls] = field(default_factory=dict)
    """By topic, the columns that functions make of a row; where one raises an error, the message is malformed."""
    rows: Mapping[str, str] = field(default_factory=dict)
    """By topic, the field with the array of rows, if a message can have many."""
    kinds: Mapping[str, Sequence[Kind]] = field(default_factory=dict)
    """By topic, the kinds of its messages, if there are several. Each is then like a topic."""
    gold: list[Row] = field(default_factory=list)
    waiting: list[Row] = field(default_factory=list)
    duplicates: list[Row] = field(default_factory=list)
    discarded: list[Row] = field(default_factory=list)
    malformed: set[tuple[str, Position]] = field(default_factory=set)
    _versions: dict[tuple[str, str | None], list[Row]] = field(default_factory=dict)
    _first: dict[tuple[int, int], Position] = field(default_factory=dict)
    _now: datetime = EPOCH

    def run(self, messages: Iterable[Message], *, again: bool = False, now: datetime = LATER) -> "Oracle":
        """Run one round: land all of `messages`, merge, enrich. `again` if the checkpoints were lost before it.

        `now` is the time of the round, by which intervals are over.
        """
        self._now = now
        told = [each for message in messages for each in self._told(message)]
        landed = [row for message in told for row in rows_of(message, self.rows.get(message.topic))]
        before = {} if again else {key: list(versions) for key, versions in self._versions.items()}
        for message in landed:
            if message.topic != "orders":
                self._merge(message)
        new = (message for message in landed if message.topic == "orders")
        fresh = [self._place(message) for message in sorted(new, key=lambda each: (each.publish_time, each.position))]
        retried = [order for order in self.waiting if self._is_news(order, before)]
        outdated = [order for order in self.gold if not self._is_settled(order)]
        self.waiting = [order for order in self.waiting if order not in retried]
        self.gold = [order for order in self.gold if order not in outdated]
        self._enrich([*retried, *(order for order in fresh if order)])
        self._enrich(outdated, in_gold=True)
        return self

    def latest(self, entity: str) -> list[Row]:
        return by_version(
            self._filled(entity, versions)[-1] for (name, _), versions in self._versions.items() if name == entity
        )

    def history(self, entity: str) -> list[Row]:
        rows = []
        for (name, _), stated in self._versions.items():
            versions = self._filled(entity, stated)
            times = [row["sequence"]["event_time"] for row in versions]
            for at, row in enumerate(versions):
                end = max(times[at], min(times[at + 1 :])) if times[at + 1 :] else None
                rows += [row | {"valid_from": times[at], "valid_until": end}] * (name == entity)
        return rows

    def _filled(self, entity: str, versions: list[Row]) -> list[Row]:
        """The versions of a key, with the values that they leave out. A delete has its own only, and ends all."""
        before, filled = Row(), list[Row]()
        for row in versions:
            kept = {name: value for name, value in before.items() if row[name] is None}
            filled.append(row | (kept if row["deleted_at"] is None else {}))
            is_deleted = row["deleted_at"] is not None
            before = {} if is_deleted else {name: filled[-1][name] for name in self.ignoring.get(entity, ())}
        return filled

    def _told(self, message: Message) -> list[Message]:
        """The message, once for each kind that it is of."""
        if message.topic not in self.kinds:
            return [message]
        return [message._replace(topic=name) for name in kinds_of(message, self.kinds[message.topic])]

    def _merge(self, message: Message) -> None:
        keys = self.keys.get(message.topic, ("id",))
        row = self._called(message, state_of(message, keys, self.occurred_at.get(message.topic)))
        if row is None:
            self.malformed.add((message.topic, message.position))
            return
        if columns := self.sequence_by.get(message.topic):
            row["sequence"] = {"by": {name: row[name] for name in columns}} | row["sequence"]
        versions = self._versions.setdefault((message.topic, text_of([row[name] for name in keys])), [])
        if row not in versions:
            versions.append(row)
            versions.sort(key=order_of)

    def _called(self, message: Message, row: Row | None) -> Row | None:
        """The row with the columns of functions; None if there is no row, or if one raises an error."""
        call = self.functions.get(message.topic)
        if row is None or call is None:
            return row
        if not message.payload:
            return row | {"called": None}
        try:
            return row | call(row)
        except ValueError:
            return None

    def _place(self, message: Message) -> Row | None:
        """The order to enrich; None if it is malformed, or a duplicate of an earlier one."""
        order = self._called(message, fact_of(message))
        if order is None:
            self.malformed.add((message.topic, message.position))
            return None
        first = self._first.setdefault((order["invoice_id"], order["line_item_id"]), message.position)
        if first != message.position:
            self.duplicates.append(order | {"duplicate_of": first._asdict()})
            return None
        return order | {"order_date": order["created_at"].date()}

    def _is_news(self, order: Row, before: Versions) -> bool:
        """Whether the state of a key that the order waits for, or that led there, has changed since `before`."""
        when = order["created_at"]
        return any(
            join.state(key, when, self._versions) != join.state(key, when, before)
            for entity, key in awaited(order)
            for join in self.joins
            if join.entity == entity
        ) or any(self._is_news_of(match, order, before) for match in self.matches)

    def _is_news_of(self, match: Match, order: Row, before: Versions) -> bool:
        """Whether rows near the order have changed, or its interval is over since."""
        [*waits] = [state["reason"] for state in order["missing"] if state["entity"] == f"match {match.name}"]
        is_changed = match.near(order, self._versions) != match.near(order, before)
        is_over = "missing" in waits and order["created_at"] + match.wait < self._now
        return bool(waits) and (is_changed or is_over)

    def _is_settled(self, order: Row) -> bool:
        """Whether an order in gold still has the right state. With a `latest` join, any version of the key will do."""
        joined = self._joined(order, held=order)
        return (
            "missing" not in joined
            and all(
                order[join.name] == joined[join.name]
                if join.is_as_of
                else join.key_in(order[join.name]) == join.key_in(joined[join.name])
                and all(order[name] == joined[name] for name in names_of(join)[1:])
                for join in self.joins
            )
            and all(order[match.name] == joined[match.name] for match in self.matches)
        )

    def lacks(self, order: Row) -> dict[str, Row]:
        """The states that an order lacks, by the name of the lookup; also those that it need not have."""
        _, lacks = found(order, self.joins, self._versions)
        return lacks

    def _joined(self, order: Row, held: Row | None = None) -> Row:
        """What an order gets, or what it waits for. What leaves gold waits for what it would if it never was there."""
        states, lacks = found(order, self.joins, self._versions, held)
        required = {join.name for join in self.joins if join.required}
        needed = {name: state for name, state in lacks.items() if name in required}
        for match in self.matches:
            states[match.name], lack = match.found(order, self._versions, self._now)
            needed |= {match.name: lack} if lack else {}
        if needed and held:
            return self._joined(order)
        return waits(needed) if needed else states

    def _enrich(self, orders: Iterable[Row], *, in_gold: bool = False) -> None:
        added = {name for join in self.joins for name in names_of(join)} | {match.name for match in self.matches}
        for order in orders:
            fact = {name: value for name, value in order.items() if name not in (*REASONS, *added)}
            joined = self._joined(fact, held=order if in_gold else None)
            (self.waiting if "missing" in joined else self.gold).append(fact | joined)


def rows_of(message: Message, name: str | None) -> list[Message]:
    """The rows of a message, as messages: the elements of the array that it is or, in its field `name`, has.

    If the payload breaks the contract, it is one row. An element that is NULL lacks a key. A message
    key says nothing of its rows.
    """
    if name is None:
        return [message]

    def row(at: int, payload: bytes) -> Message:
        position: Any = RowPosition(*message.position, at)
        return message._replace(position=position, key=None, payload=payload)

    whole = [row(-1, b"broken")]
    try:
        value = json.loads((message.payload or b"").decode("utf-8"))
    except ValueError:
        return whole
    elements = value if isinstance(value, list) else value.get(name) if isinstance(value, dict) else 0
    if elements is not None and not isinstance(elements, list):
        return whole
    rows = [row(at, json.dumps(element).encode()) for at, element in enumerate(elements or [])]
    return whole if any(parse(row) is None for row in rows if row.payload != b"null") else rows


def is_malformed(message: Message) -> bool:
    return (fact_of(message) if message.topic == "orders" else state_of(message)) is None


def parse(message: Message) -> Row | None:
    """All fields of the contract, with the payload's values; None if the payload breaks the contract.

    If a field is there more than once, each value must fit its type, and the last one counts.
    """
    try:
        text = (message.payload or b"").decode("utf-8")
        _refuse_excess(text)
        value = json.loads(
            text,
            parse_constant=_refuse,
            object_pairs_hook=Pairs,
        )
    except ValueError:
        return None
    if not isinstance(value, Pairs):
        return None
    fields: Row = dict.fromkeys(CONTRACTS[message.topic])
    for name, given in value:
        kind = CONTRACTS[message.topic].get(name)
        if kind is None:
            continue
        fits = is_of(kind.rstrip("!"), given) and is_within(kind.rstrip("!"), given)
        if given is not None and not fits:
            return None
        fields[name] = given
    for name, kind in CONTRACTS[message.topic].items():
        given = fields[name]
        if kind.endswith("!") if given is None else not is_within(kind.rstrip("!"), given):
            return None
        if given is not None:
            fields[name] = READ_AS[kind.rstrip("!")](given)
    return fields


class Pairs(list[tuple[str, Any]]):
    """A JSON object, with all values of each name."""


def is_of(kind: str, value: object) -> bool:
    """Whether a JSON value is of a contract's type. A string field takes any value, as its JSON text."""
    if kind == "string":
        return True
    return isinstance(value, JSON_TYPES[kind]) and not isinstance(value, bool) and (kind == "double" or value in LONGS)


def is_within(kind: str, value: Any) -> bool:
    """Whether a value is in the range of its type."""
    if kind == "double":
        return bool(abs(value) < 2**1024 - 2**970)  # larger values are rounded to infinity
    return kind != "time" or value in TIMES


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else _as_json(value)


def _as_json(value: object) -> str:
    """A value as JSON, with all values of each name in an object."""
    if isinstance(value, Pairs):
        return f"{{{','.join(f'{_as_json(name)}:{_as_json(each)}' for name, each in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_as_json, value))}]"
    return json.dumps(value, ensure_ascii=False)


READ_AS: Mapping[str, Any] = {"long": int, "time": int, "double": float, "string": _as_text}


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _refuse_excess(text: str) -> None:
    """Raises ValueError if the text is nested too deep, or has half a surrogate pair."""
    for token in re.findall(r'"(?:[^"\\]|\\.)*"', text):
        if "\\" in token:
            json.loads(token).encode("utf-16-le")  # fails on half a pair
    depth = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[\[{}\]]', text):
        depth += (bracket in "[{") - (bracket in "}]")
        if depth > DEEPEST:
            raise ValueError("nested too deep")


def state_of(message: Message, keys: tuple[str, ...] = ("id",), occurred_at: str | None = None) -> Row | None:
    """The silver row of a message about a user or an item; None if it is malformed.

    `occurred_at` is the field that has the time of the change, if one is declared.
    """
    given = values_of(message.key, keys)
    event_time = message.event_time or message.publish_time
    sequence = {"event_time": event_time, "publish_time": message.publish_time, **message.position._asdict()}
    del sequence["partition"]
    columns = user_row if message.topic == "users" else item_row
    if not message.payload:
        if given is None:
            return None
        gone = dict.fromkeys(columns(dict.fromkeys(CONTRACTS[message.topic])))
        return gone | given | {"deleted_at": event_time, "sequence": sequence}
    value = parse(message)
    if value is None:
        return None
    row = columns(value)
    if not keeps_checks(message.topic, row):
        return None
    if occurred_at is not None and (own := moment(value[occurred_at])) is not None:
        sequence["event_time"] = own
    row |= {name: value for name, value in (given or {}).items() if row[name] is None}
    if any(row[name] is None for name in keys) or message.key not in (None, text_of([row[name] for name in keys])):
        return None
    return row | {"sequence": sequence}


def values_of(text: str | None, keys: tuple[str, ...]) -> Row | None:
    """The columns that a message key names; None if it is not exactly the text of a key. An id is a BIGINT."""
    if keys == ("id",):
        return {"id": int(text or "")} if is_key(text) else None
    try:
        values = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(values, list) or len(values) != len(keys) or text_of(values) != text:
        return None
    named = dict(zip(keys, values, strict=True))
    types = all(is_key(str(value)) if name == "id" else isinstance(value, str) for name, value in named.items())
    return named if types and not isinstance(named.get("id"), str) else None


def is_key(text: str | None) -> bool:
    """Whether a message key is the text of a BIGINT, as SQL writes it."""
    return re.fullmatch("0|-?[1-9][0-9]*", text or "") is not None and int(text or "") in LONGS


def fact_of(message: Message) -> Row | None:
    """The order of a message; None if the message is malformed."""
    value = parse(message)
    order = None if value is None else order_row(value) | {"position": message.position._asdict()}
    return order if order is not None and keeps_checks("orders", order) else None


def order_of(row: Row) -> tuple[Any, ...]:
    """The place of a version in its sequence. NULL comes first."""
    by = row["sequence"].get("by", {})
    message = (value for name, value in row["sequence"].items() if name != "by")
    return (*((value is not None, value) for value in by.values()), *message)


def user_row(value: Row) -> Row:
    return {
        "id": value["id"],
        "first_name": value["firstName"],
        "last_name": value["lastName"],
        "email_address": value["emailAddress"],
        "created_at": moment(value["createdAt"]),
        "merged_at": moment(unless_unset(value["mergedAt"])),
        "parent_user_id": unless_unset(value["parentUserId"]),
        "deleted_at": moment(unless_unset(value["deletedAt"])),
    }


def item_row(value: Row) -> Row:
    return {
        "id": value["id"],
        "created_at": moment(value["createdAt"]),
        **{name: value[name] for name in ("adjective", "category", "modifier", "name", "price")},
        "deleted_at": None,
    }


def order_row(value: Row) -> Row:
    return {
        "invoice_id": value["invoiceId"],
        "line_item_id": value["lineItemId"],
        "user_id": value["userId"],
        "item_id": value["itemId"],
        "item_name": value["itemName"],
        "item_category": value["itemCategory"],
        "price": value["price"],
        "created_at": moment(value["createdAt"]),
        "paid_at": moment(value["paidAt"]),
    }


def keeps_checks(topic: str, row: Row) -> bool:
    """Whether a row keeps the checks that quarantine. If not, its message is like one that breaks the contract."""
    if topic == "orders":
        return 0 <= row["price"] < 1e15 and (row["paid_at"] is None or row["paid_at"] >= row["created_at"])
    return topic != "items" or bool(row["price"] >= 0)


def moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)


def unless_unset(value: int | None) -> int | None:
    return None if value == -1 else value


def landed(topic: str, bronze: Iterable[Row]) -> list[Message]:
    """Bronze rows as the oracle's messages."""
    return [
        Message(
            topic,
            Position(row["partition"], row["ledger_id"], row["entry_id"], row["batch_index"]),
            row["key"],
            row["payload"],
            row["event_time"],
            row["publish_time"],
        )
        for row in bronze
    ]


def by_position(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row["position"].values()))


def by_id(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["id"])


def by_version(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["id"], order_of(row)))
