"""Merged keys: who stands for them in the end, through any number of merges, in whatever order those came."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type

ALWAYS = (-(2**63), 2**63 - 1)


class Merge(NamedTuple):
    """From when until when, in epoch microseconds, one key was merged into another."""

    since: int
    until: int
    into: Any


class Way(NamedTuple):
    """Who stood for a key in a time, and the merged keys on the way to it, from the key itself on.

    If they went round in a circle, the survivor is one of them.
    """

    since: int
    until: int
    survivor: Any
    merged: tuple[Any, ...]


def survivors_of(keys: DataFrame, *, merges: DataFrame) -> DataFrame:
    """The `key`s that were merged, and the `Way`s from them.

    `merges` are rows of `key` and its `Merge`s, which are read into memory, some 100 bytes each.
    """
    known: dict[Any, list[Merge]] = {}
    for row in merges.select("key", *Merge._fields).toArrow().to_pylist():
        known.setdefault(row.pop("key"), []).append(Merge(**row))
    used = keys.join(F.broadcast(merges), on="key", how="left_semi").distinct().collect() if known else []
    rows = [(row.key, *way) for row in used for way in follow(row.key, merges=known)]
    kind, time = to_arrow_type(merges.schema["key"].dataType), pa.int64()
    schema = pa.schema({"key": kind, "since": time, "until": time, "survivor": kind, "merged": pa.list_(kind)})
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    return keys.sparkSession.createDataFrame(pa.table([*map(list, columns)], schema=schema))


def leading_to(keys: DataFrame, *, merges: DataFrame) -> DataFrame:
    """The `key`s themselves, and those that were merged into them at any time, by whatever way."""
    sources: dict[Any, list[Any]] = {}
    for row in merges.select("key", "into").toArrow().to_pylist():
        sources.setdefault(row["into"], []).append(row["key"])
    found: set[Any] = set()
    into = merges.select(F.col("into").alias("key"))
    to_do = [row.key for row in keys.join(into, on="key", how="left_semi").distinct().collect()] if sources else []
    while to_do:
        key = to_do.pop()
        if key not in found:
            found.add(key)
            to_do += sources.get(key, ())
    kind = to_arrow_type(merges.schema["key"].dataType)
    merged = keys.sparkSession.createDataFrame(pa.table({"key": pa.array(list(found), kind)}))
    return keys.union(merged).distinct()


def follow(key: Any, *, merges: Mapping[Any, Sequence[Merge]]) -> Iterator[Way]:
    """The ways from a key, for all the time in which it was merged."""
    open_ways = [Way(*ALWAYS, key, ())]
    while open_ways:
        since, until, key, merged = open_ways.pop()
        for merge in sorted(merges.get(key, ())):
            if merge.until <= since or merge.since >= until:
                continue
            if merged and since < merge.since:
                yield Way(since, merge.since, key, merged)
            way = Way(max(since, merge.since), min(until, merge.until), merge.into, (*merged, key))
            if merge.into in way.merged:
                yield way
            else:
                open_ways.append(way)
            since = way.until
        if merged and since < until:
            yield Way(since, until, key, merged)
