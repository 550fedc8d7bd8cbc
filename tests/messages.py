"""Builds the messages of tests, in a line each."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.oracle import EPOCH, Message, Position

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    """The moment so many minutes after the start of 2026."""
    return START + timedelta(minutes=minutes)


def millis(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def user(
    id: int, /, name: str | None = "Ada", *, when: float = 0, place: int = 0, late: float = 0, **fields: Any
) -> Message:
    """A change of a user at minute `when`, published `late` minutes later as entry `place`."""
    payload = {"id": id, "firstName": name, "createdAt": millis(at(0)), "deletedAt": -1, "mergedAt": -1, **fields}
    return message("users", payload, key=str(id), when=when, place=place, late=late)


def item(id: int, price: float = 1.5, *, when: float = 0, place: int = 0, **fields: Any) -> Message:
    payload = {"id": id, "createdAt": millis(at(0)), "name": "pie", "price": price, **fields}
    return message("items", payload, key=str(id), when=when, place=place)


def order(line: int, *, place: int, user: int = 1, item: int = 1, when: float = 10, **fields: Any) -> Message:
    payload = {
        "invoiceId": 1,
        "lineItemId": line,
        "userId": user,
        "itemId": item,
        "itemName": "pie",
        "price": 1.5,
        "createdAt": millis(at(when)),
        **fields,
    }
    return message("orders", payload, key=str(line), when=when, place=place)


def tombstone(topic: str, key: str | None, *, when: float = 0, place: int = 0, late: float = 0) -> Message:
    return message(topic, None, key=key, when=when, place=place, late=late)


def message(
    topic: str, payload: object, *, key: str | None, when: float | None = 0, place: int = 0, late: float = 0
) -> Message:
    """A payload that is not bytes becomes JSON. None is a tombstone."""
    content = payload if payload is None or isinstance(payload, bytes) else json.dumps(payload).encode()
    published = at((when or 0) + late)
    return Message(topic, Position(0, 7, place, 0), key, content, None if when is None else at(when), published)
