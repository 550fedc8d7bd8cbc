"""`make flipped-bits`: see *A disk that lies* in docs/reliability.md."""

import random
from collections import Counter
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.spark.session import for_short_run, start_spark, stop_spark
from pulsar_lakehouse.tables.checksums import checksum_path
from tests.damage.flips import (
    NAMES,
    ROWS,
    WITHIN,
    Flip,
    Outcome,
    Reader,
    Rows,
    by_check,
    by_delta_rs,
    by_delta_rs_before,
    by_duckdb,
    by_duckdb_before,
    drawn,
    outcome_of,
    write,
)

CONSOLE = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
PAGES = "parquet.page.verify-checksum.enabled"


def flipped_bits(
    seed: Annotated[int, typer.Option(help="The same seed flips the same bits.")] = 1,
    bits: Annotated[int, typer.Option(min=1, help="How many bits are flipped, one after the other.")] = 240,
) -> None:
    """Flip bits in files of tables, read these, and count wrong rows in silence, with and without checksums."""
    with TemporaryDirectory(prefix="flipped-bits-") as home:
        settings = for_short_run(load_settings(home=Path(home)))
        spark = start_spark(settings)
        try:
            make_tables(spark, settings)
            show(counted(readers_of(spark), settings, seed, bits))
        finally:
            stop_spark()


def make_tables(spark: SparkSession, settings: Settings) -> None:
    write(settings, NAMES["delta-rs"])
    path = settings.table_path(NAMES["Spark"])
    rows = spark.createDataFrame(ROWS).coalesce(1)
    rows.limit(0).write.format("delta").option("delta.checkpointInterval", 1).save(path)
    for each in (rows, rows.limit(1)):
        each.write.format("delta").mode("append").save(path)


def readers_of(spark: SparkSession) -> dict[str, tuple[Reader, Reader]]:
    """By name, how each reads with and without what verifies."""

    def by_spark(settings: Settings, name: str) -> Rows:
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        table = spark.read.format("delta").load(settings.table_path(name))
        return [row for rows in (table, table.where(WITHIN)) for row in _sorted(rows)]

    def by_spark_before(settings: Settings, name: str) -> Rows:
        spark.conf.set(PAGES, "false")
        try:
            return by_spark(settings, name)
        finally:
            spark.conf.unset(PAGES)

    return {
        "Spark": (by_spark_before, by_spark),
        "delta-rs": (by_delta_rs_before, by_delta_rs),
        "DuckDB": (by_duckdb_before, by_duckdb),
        "`lakehouse check`": (by_check, by_check),
    }


def _sorted(rows: DataFrame) -> Rows:
    return sorted(map(tuple, rows.collect()), key=repr)


Counts = Counter[tuple[str, str, bool, Outcome]]


def counted(readers: dict[str, tuple[Reader, Reader]], settings: Settings, seed: int, bits: int) -> Counts:
    """How often reading ended in which way, by region, reader, and whether there were checksums."""
    draw, counts = random.Random(seed), Counts()
    truth = {(name, reader): read[1](settings, name) for name in NAMES.values() for reader, read in readers.items()}
    flips = {name: drawn(settings, name, draw) for name in NAMES.values()}
    for number in range(bits // len(NAMES)):
        for writer, name in NAMES.items():
            (flip,) = islice(flips[name], 1)
            for reader, (before, after) in readers.items():
                rows = truth[name, reader]
                counts[flip.region, reader, True, outcome(flip, after, settings, name, rows)] += 1
                if reader != "`lakehouse check`":
                    without = outcome(flip, before, settings, name, rows, is_summed=writer == "Spark")
                    counts[flip.region, reader, False, without] += 1
        CONSOLE.print(f"{number + 1} of {bits // len(NAMES)}")
    return counts


def outcome(flip: Flip, read: Reader, settings: Settings, name: str, truth: Rows, *, is_summed: bool = True) -> Outcome:
    """How reading ends with a flipped bit; unless it `is_summed`, without the checksums of the file."""
    checksums = Path(checksum_path(str(flip.file)))
    kept = checksums.read_bytes() if checksums.exists() else b""
    with flip.made():
        try:
            if not is_summed:
                checksums.unlink(missing_ok=True)
            return outcome_of(read, settings, name, truth)
        finally:
            if kept:
                checksums.write_bytes(kept)


def show(counts: Counts) -> None:
    """Print a table in Markdown. A cell has wrong rows, noticed, unchanged."""
    regions = list(dict.fromkeys(region for region, *_ in counts))
    ways = list(dict.fromkeys((reader, has) for _, reader, has, _ in counts))
    ways.sort(key=lambda way: way[1])
    titles = [f"{reader}, {'now' if has else 'before'}" for reader, has in ways]
    CONSOLE.print("| where the bit is | bits | " + " | ".join(titles) + " |\n" + "| --- " * (len(titles) + 2) + "|")
    for region in [*regions, "all"]:
        cells = [[_sum(counts, region, *way, each) for each in (Outcome.SILENT, Outcome.NOTICED)] for way in ways]
        number = sum(_sum(counts, region, *ways[0], each) for each in Outcome)
        CONSOLE.print(f"| {region} | {number} | " + " | ".join(f"{a} / {b}" for a, b in cells) + " |")


def _sum(counts: Counts, region: str, reader: str, has: bool, outcome: Outcome) -> int:
    return sum(
        number
        for (where, *way, how), number in counts.items()
        if region in (where, "all") and [reader, has, outcome] == [*way, how]
    )


if __name__ == "__main__":
    typer.run(flipped_bits)
