"""What the tables must hold, recomputed from the topics' messages in plain Python alone, and how they differ from it.

`lakehouse run --every` takes messages in rounds of its own, and a `latest` join gives an order the state of that
moment. So two things may differ from a single round of the oracle, as long as they are true: the version of its user
that an order in gold carries, and whether an order that lacks two states says both.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from deltalake.exceptions import DeltaError, TableNotFoundError

from pulsar_lakehouse.settings import Settings
from tests.lake import expected, messages, tables
from tests.oracle import Message, Oracle, Position
from tests.oracle_lookups import REASONS, Row, waits

ANY_VERSION = "a version of the user"
UNREADABLE = (DeltaError, TableNotFoundError, OSError)


class Recomputation:
    def __init__(self, sent: Sequence[Message]) -> None:
        self._oracle = Oracle().run(sent)
        self._users = {_text(_state(row)) for row in self._oracle.history("users")}
        self._orders = {Position(**row["position"]): row for row in [*self._oracle.gold, *self._oracle.waiting]}
        should = expected(self._oracle)
        should["gold"] = [self._any_version(row) for row in should["gold"]]
        should["waiting"] = [_without_reasons(row) for row in should["waiting"]]
        self._landed, self._tables = _texts(sent), {name: _texts(rows) for name, rows in should.items()}

    def differences(self, settings: Settings) -> list[str]:
        """How the tables differ, in a line for each table that does. Reads them without Spark."""
        try:
            if landed := _differ(self._landed, _texts(messages(settings))):
                return [f"bronze: {landed}"]
            held = tables(settings)
        except UNREADABLE as error:
            return [f"can't be read: {error}"]
        held["gold"] = [self._any_version(row) for row in held["gold"]]
        held["waiting"] = [self._true_reasons(row) for row in held["waiting"]]
        return [
            f"{name}: {difference}"
            for name, rows in self._tables.items()
            if (difference := _differ(rows, _texts(held[name])))
        ]

    def _any_version(self, row: Row) -> Row:
        is_one = _text(row["user"]) in self._users
        return row | {"user": (row["user"]["id"], ANY_VERSION) if is_one else row["user"]}

    def _true_reasons(self, row: Row) -> Row:
        """A waiting order, without its reasons if they are true.

        They need not be all: an order is not tried again if it lacks one more state.
        """
        order = self._orders.get(Position(**row["position"]))
        lacks = self._oracle.lacks(order) if order else {}
        said = {name: state for name, state in lacks.items() if state in row["missing"]}
        is_true = bool(said) and {name: row[name] for name in REASONS} == waits(said)
        return _without_reasons(row) if is_true else row


def _state(version: Row) -> Row:
    return {name: value for name, value in version.items() if name not in ("valid_from", "valid_until")}


def _without_reasons(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in REASONS}


def _text(value: Any) -> str:
    """A text that is the same for equal rows, whatever the order of their columns and the name of the UTC zone."""
    match value:
        case dict():
            return "{" + ", ".join(f"{name}: {_text(value[name])}" for name in sorted(value)) + "}"
        case list() | tuple():
            return "(" + ", ".join(map(_text, value)) + ")"
        case datetime():
            return value.isoformat()
    return repr(value)


def _texts(rows: Iterable[Any]) -> Counter[str]:
    return Counter(map(_text, rows))


def _differ(should: Counter[str], held: Counter[str]) -> str:
    lacking, excess = should - held, held - should
    told = [
        f"{found.total()} {what}, such as {next(iter(found))[:400]}"
        for what, found in (("missing", lacking), ("too many", excess))
        if found
    ]
    return " and ".join(told)
