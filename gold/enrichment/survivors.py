"""Merged keys: who stands for them in the end, through any number of merges, in whatever order those came."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from gold.enrichment.declaration import Lookup

Merges = Mapping[Any, Any]
"""Merged keys, and the key that each was merged into."""


class Way(NamedTuple):
    """Where merges lead from a key: `survivor` stands for it, `merged` are the keys on the way, from the key itself on.

    A survivor that was merged too stands for nobody: it is one of `merged` where they go round in a circle, or else
    the first key beyond the limit. Only a change of one of these keys can lead elsewhere.
    """

    survivor: Any
    merged: list[Any]


def read_merges(state: DataFrame, *, lookup: Lookup) -> pa.Table:
    """All merges of a latest state, as rows of `key` and `into`, in memory: some 100 bytes each."""
    into = lookup.merges_into(state.schema[lookup.key].dataType)
    rows = state.select(F.col(lookup.key).alias("key"), into.alias("into"))
    return rows.where("into IS NOT NULL").toArrow()


def merges_of(state: DataFrame, version: str, *, lookup: Lookup) -> pa.Table:
    """As `read_merges`, but a version of the state is read once, as long as no other one is."""
    held, merges = _READ.get(lookup, ("", None))
    if merges is None or held != version:
        merges = read_merges(state, lookup=lookup)
        _READ[lookup] = version, merges
    return merges


_READ: dict[Lookup, tuple[str, pa.Table]] = {}


def mapping_of(merges: pa.Table) -> Merges:
    return dict(zip(merges["key"].to_pylist(), merges["into"].to_pylist(), strict=True))


def ways_of(keys: DataFrame, *, merges: pa.Table, limit: int) -> pa.Table:
    """The `Way` from each of the `key`s that was merged, in memory; `merges` are as `read_merges` has them."""
    used: list[Any] = []
    if merges.num_rows:
        merged = keys.sparkSession.createDataFrame(merges.select(["key"]))
        used = keys.join(F.broadcast(merged), on="key", how="left_semi").distinct().toArrow()["key"].to_pylist()
    return ways_from(used, merges=merges, limit=limit)


def ways_from(keys: Sequence[Any], *, merges: pa.Table, limit: int) -> pa.Table:
    """The `Way` from each of these keys, with the `key`."""
    known, kind = mapping_of(merges) if keys else {}, merges.schema.field("key").type
    ways = {key: follow(key, merges=known, limit=limit) for key in keys}
    columns = [list(ways), [way.survivor for way in ways.values()], [way.merged for way in ways.values()]]
    return pa.table(columns, schema=pa.schema({"key": kind, "survivor": kind, "merged": pa.list_(kind)}))


def follow(key: Any, *, merges: Merges, limit: int) -> Way:
    """The way from a key through at most `limit` merges."""
    merged: dict[Any, None] = {}  # in order, and quick to search
    while key in merges and key not in merged and len(merged) < limit:
        merged[key] = None
        key = merges[key]
    return Way(key, list(merged))


def leading_to(keys: Iterable[Any], *, merges: Merges, limit: int) -> set[Any]:
    """The keys themselves, and those that at most `limit` merges lead from to one of them."""
    sources: dict[Any, list[Any]] = {}
    for key, into in merges.items():
        sources.setdefault(into, []).append(key)
    found = set(keys)
    nearest = found
    for _ in range(limit):
        nearest = {source for key in nearest for source in sources.get(key, ())} - found
        if not nearest:
            break
        found |= nearest
    return found
