"""One rule that Spark and DuckDB both have: for which keys a fact waits that lacks some state."""

from typing import NamedTuple


class Lacking(NamedTuple):
    """An element of `missing`."""

    entity: str
    key: str
    reason: str
    merged: list[str] | None
    via: list[tuple[str, str]] | None


AWAITED: list[tuple[Lacking, list[tuple[str, str]]]] = [
    (Lacking("users", "5", "missing", None, None), [("users", "5")]),
    (Lacking("users", "6", "missing", ["4", "5"], None), [("users", "4"), ("users", "5"), ("users", "6")]),
    (Lacking("items", "7", "missing", None, [("users", "5")]), [("users", "5"), ("items", "7")]),
    (
        Lacking("items", "7", "deleted", ["6"], [("users", "5"), ("users", "8")]),
        [("users", "5"), ("users", "8"), ("items", "6"), ("items", "7")],
    ),
]
"""Each with the entities and keys that it awaits."""
