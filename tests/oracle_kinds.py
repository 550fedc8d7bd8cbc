"""Which messages of a topic are of which kind, in plain Python."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of a topic's messages: those that have this value in a property or, if it is by fields, in a field."""

    name: str
    key: str
    value: str
    is_by_fields: bool = False

    def has(self, message: Any) -> bool:
        """Whether the message says so. A tombstone has no fields."""
        return dict((read(message) or {}) if self.is_by_fields else message.properties).get(self.key) == self.value


def read(message: Any) -> Mapping[str, Any] | None:
    """The fields of a payload; None if it can't be read at all."""
    try:
        value = json.loads((message.payload or b"{}").decode("utf-8"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def names_of(message: Any, kinds: Sequence[Kind]) -> list[str]:
    """The kinds of a message. If it can't be read, and its properties tell none, it is of the first one by fields."""
    found = [kind.name for kind in kinds if kind.has(message)]
    first = [kind.name for kind in kinds if kind.is_by_fields][:1]
    return found if found or read(message) is not None else first


def counted(messages: Iterable[Any], kinds: Sequence[Kind]) -> dict[str, int]:
    """How many messages are of each kind, and how many are others."""
    found = [names_of(each, kinds) for each in messages]
    numbers = {kind.name: sum(kind.name in names for names in found) for kind in kinds}
    return numbers | {"other": found.count([])}
