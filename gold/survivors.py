"""Merged keys: who stands for them in the end, through any number of merges, in whatever order those came."""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type


def survivors_of(keys: DataFrame, *, merges: DataFrame) -> DataFrame:
    """The `key`s that were merged, with `survivor` and `merged`, the keys on the way to it from themselves on.

    `merges` are pairs of `key` and `merged_into`, which are read into memory: some 100 bytes each. Where they go round
    in a circle, `survivor` is one of `merged`.
    """
    pairs = merges.toArrow()
    into = dict(zip(pairs["key"].to_pylist(), pairs["merged_into"].to_pylist(), strict=True))
    used = keys.join(F.broadcast(merges), on="key", how="left_semi").distinct().collect() if into else []
    kind = to_arrow_type(merges.schema["key"].dataType)
    ways = [(row.key, *follow(row.key, into=into)) for row in used]
    schema = pa.schema({"key": kind, "survivor": kind, "merged": pa.list_(kind)})
    columns = zip(*ways, strict=True) if ways else ([], [], [])
    return keys.sparkSession.createDataFrame(pa.table([*map(list, columns)], schema=schema))


def follow(key: object, *, into: Mapping[object, object]) -> tuple[object, list[object]]:
    """The survivor of a key, and the merged keys on the way."""
    merged: dict[object, None] = {}  # in order, and quick to ask
    while key in into and key not in merged:
        merged[key] = None
        key = into[key]
    return key, list(merged)
