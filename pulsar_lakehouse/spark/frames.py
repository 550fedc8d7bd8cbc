"""Frames that are computed once, made of rows in memory, or reduced to some keys."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """The rows, computed only once even if several queries of the block read them."""
    rows.persist(StorageLevel.MEMORY_AND_DISK_DESER)  # otherwise, PySpark keeps rows serialised and compressed
    try:
        yield rows
    finally:
        rows.unpersist()


def frame_of(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """The rows as a frame, all of them: PySpark 4.2.0 drops what follows an empty chunk, and fails without a chunk."""
    rows = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return spark.createDataFrame(rows, schema)


def of_keys(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """The rows whose key is in `keys`; NULL counts as a key.

    If there are few keys, Spark filters the rows before it aggregates them.
    """
    same = [rows[name].eqNullSafe(keys[name]) for name in keys.columns]
    return rows.join(keys, on=same, how="left_semi")


def with_columns_of(rows: DataFrame, table: DataFrame) -> DataFrame:
    """The rows with all columns of a table; columns that the rows lack are NULL."""
    undeclared = [column for column in table.schema if column.name not in rows.columns]
    return rows.withColumns({column.name: F.lit(None).cast(column.dataType) for column in undeclared})


def size_of(rows: DataFrame) -> int:
    """The bytes that cached rows take; an estimate, often far too large, of others."""
    plan = rows.select("*")._jdf.queryExecution().optimizedPlan()
    return int(plan.stats().sizeInBytes())
