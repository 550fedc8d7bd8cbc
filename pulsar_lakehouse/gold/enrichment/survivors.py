"""Find the survivor of merged keys, through chains of merges that arrived in any order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.gold.enrichment.declaration import Lookup
from pulsar_lakehouse.spark.frames import frame_of
from pulsar_lakehouse.tables.lake import Pinned

Merges = Mapping[Any, Any]
"""By merged key: the key that it was merged into."""


class Way(NamedTuple):
    """Where merges lead from a key: its `survivor`, and the `merged` keys on the way, starting with the key itself.

    If `survivor` was merged too, there is no usable survivor: it is one of `merged` if the merges form a circle, or the
    first key beyond the limit. Only a change of one of these keys can change the way.
    """

    survivor: Any
    merged: list[Any]


def read_merges(state: DataFrame, *, lookup: Lookup) -> pa.Table:
    """All merges of a latest state as rows of `_key` and `_into`, in memory: about 100 bytes each."""
    into = lookup.merges_into(state.schema[lookup.key].dataType)
    rows = state.select(F.col(lookup.key).alias("_key"), into.alias("_into"))
    return rows.where("_into IS NOT NULL").toArrow()


def merges_of(state: Pinned, *, lookup: Lookup) -> pa.Table:
    """Like `read_merges`, but cached: for each SQL of merges, those of the version that was read last."""
    declared = lookup.table, lookup.merged_into
    version, merges = _READ.get(declared, ("", None))
    if merges is None or version != state.id:
        merges = read_merges(state.rows, lookup=lookup)
        _READ[declared] = state.id, merges
    return merges


_READ: dict[tuple[str, str | None], tuple[str, pa.Table]] = {}


def mapping_of(merges: pa.Table) -> Merges:
    return dict(zip(merges["_key"].to_pylist(), merges["_into"].to_pylist(), strict=True))


def merged_among(keys: pa.ChunkedArray, merges: pa.Table) -> list[Any]:
    """The keys that were merged, each of them once. Both have the same type, whose equal values are the same."""
    merged: list[Any] = pc.unique(keys.filter(pc.is_in(keys, merges["_key"].combine_chunks()))).to_pylist()
    return merged


def ways_of(keys: DataFrame, *, merges: pa.Table, limit: int) -> pa.Table:
    """The `Way` from each merged key in the column `_key`, in memory. `merges` are as `read_merges` returns them."""
    used: list[Any] = []
    if merges.num_rows:
        merged = frame_of(keys.sparkSession, merges.select(["_key"]).rename_columns(["_merged"]))
        used_merges = keys.join(F.broadcast(merged), on=F.col("_key") == F.col("_merged"))
        used = used_merges.select("_merged").distinct().toArrow()["_merged"].to_pylist()
    return ways_from(used, merges=merges, limit=limit)


def ways_from(keys: Sequence[Any], *, merges: pa.Table, limit: int) -> pa.Table:
    """The `Way` from each of these keys, as rows of `_key`, `_survivor` and `_merged`."""
    known, kind = mapping_of(merges) if keys else {}, merges.schema.field("_key").type
    ways = {key: follow(key, merges=known, limit=limit) for key in keys}
    columns = [list(ways), [way.survivor for way in ways.values()], [way.merged for way in ways.values()]]
    return pa.table(columns, schema=pa.schema({"_key": kind, "_survivor": kind, "_merged": pa.list_(kind)}))


def follow(key: Any, *, merges: Merges, limit: int) -> Way:
    """Follow merges from a key, at most `limit` of them."""
    merged: dict[Any, None] = {}  # keeps the order, and is quick to search
    while key in merges and key not in merged and len(merged) < limit:
        merged[key] = None
        key = merges[key]
    return Way(key, list(merged))


def leading_to(keys: Iterable[Any], *, merges: Merges, limit: int) -> set[Any]:
    """The keys themselves, and all keys that lead to one of them through at most `limit` merges."""
    sources: dict[Any, list[Any]] = {}
    for key, into in merges.items():
        sources.setdefault(into, []).append(key)
    leading = set(keys)
    nearest = leading
    for _ in range(limit):
        nearest = {source for key in nearest for source in sources.get(key, ())} - leading
        if not nearest:
            break
        leading |= nearest
    return leading
