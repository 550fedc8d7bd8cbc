"""Landing snapshots of a source, beside the plainest way in Spark: speed, CPU.

    .venv/bin/python -m benchmarks snapshot_source [--rows 1000000] [--rounds 3]

The source is files, or a table of a Postgres that is started for this. Its first snapshot has all rows; in each of the
next, 0.8 % of them have changed, 0.1 % are new, and 0.1 % are gone. The plain way joins the snapshot
with the one before, both of them Parquet files, by key, and appends the rows that differ to a Delta table: no contract,
no check of keys and deletes, and it must keep the snapshot before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from pyarrow import csv
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.bench import Lap, lap, middle, open_lake
from pulsar_lakehouse.bronze.sources import SourceLanding
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.contracts.sources import Files, Postgres, Source
from pulsar_lakehouse.local import airflow_database
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.tables.lake import Lake
from tests.postgres import in_postgres

FIELDS = "id BIGINT NOT NULL, name STRING, city STRING, credit DECIMAL(12, 2), changedAt TIMESTAMP"
COLUMNS = ("id", "name", "city", "credit", "changedAt")


def main(
    rows: Annotated[int, typer.Option(help="Of each snapshot.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Snapshots after the first; medians are shown.")] = 3,
) -> None:
    with open_lake() as lake, running_postgres(lake.settings.home) as url:
        lake = Lake(lake.spark, in_postgres(lake.settings, url))
        folder = lake.settings.home / "source"
        folder.mkdir(parents=True)
        in_parquet, in_csv = (Files(kind, FIELDS, path=f"{folder}/rows.{kind}") for kind in ("parquet", "csv"))
        found = {
            "Parquet": _landed(lake, in_parquet, rows, rounds, to_parquet),
            "CSV": _landed(lake, in_csv, rows, rounds, to_csv),
            "Postgres": _landed(lake, Postgres("customers", FIELDS), rows, rounds, to_postgres(url)),
            "plain, Parquet": _plain(lake, folder, rows, rounds),
        }
    lines = [
        (f"{name}, {what}", *measured.seconds(), measured.rates(rows)[0])
        for name, laps in found.items()
        for what, measured in zip(("all rows new", "1 % changed", "nothing changed"), laps, strict=False)
    ]
    report.rows(["", "seconds", "CPU s", "rows/s"], lines, title=f"Snapshots of {rows:,} rows")


def snapshot(rows: int, place: int) -> pa.Table:
    """Rows by id, of which in each place others have changed. Ids begin a thousandth of the rows later each time."""
    ids = np.arange(rows) + place * rows // 1000
    turn = ids % 125
    credit = pa.array((ids % 4096 + np.where(turn <= place, turn, 0)).astype("int16")).cast(pa.decimal128(12, 2))
    ids = pa.array(ids)
    text = pc.cast(ids, pa.string())
    return pa.table(
        {
            "id": ids,
            "name": pc.binary_join_element_wise("Ada ", text, ""),
            "city": pc.binary_join_element_wise("City", pc.cast(pc.bit_wise_and(ids, 1023), pa.string()), " "),
            "credit": credit,
            "changedAt": pc.cast(pc.multiply(pc.add(ids, 1_767_225_600), 1_000_000), pa.timestamp("us", "UTC")),
        }
    )


def to_parquet(table: pa.Table, source: Source) -> None:
    assert isinstance(source, Files)
    pq.write_table(table, source.path)


def to_csv(table: pa.Table, source: Source) -> None:
    assert isinstance(source, Files)
    csv.write_csv(table, source.path)


def to_postgres(url: str) -> Callable[[pa.Table, Source], None]:
    def write(table: pa.Table, source: Source) -> None:
        sink = pa.BufferOutputStream()
        csv.write_csv(table, sink)
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            columns = 'id bigint, name text, city text, credit numeric(12, 2), "changedAt" timestamptz'
            cursor.execute(f"DROP TABLE IF EXISTS {source.name}; CREATE TABLE {source.name} ({columns})")
            with cursor.copy(f"COPY {source.name} FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write(sink.getvalue().to_pybytes())

    return write


def _landed(
    lake: Lake, source: Source, rows: int, rounds: int, write: Callable[[pa.Table, Source], None]
) -> tuple[Lap, Lap, Lap]:
    laps = []
    for place in range(rounds + 1):
        write(snapshot(rows, place), source)
        laps.append(_land(lake, source))
    return laps[0], middle(laps[1:]), _land(lake, source)


def _land(lake: Lake, source: Source) -> Lap:
    with lap() as measured:
        SourceLanding(lake, source, ("id",), always=True)(Permit())
    return measured


def _plain(lake: Lake, folder: Path, rows: int, rounds: int) -> tuple[Lap, Lap]:
    first, laps = Lap(), list[Lap]()
    target = str(folder / "plain")
    for place in range(rounds + 1):
        pq.write_table(snapshot(rows, place), folder / f"plain-{place}.parquet")
        now = lake.spark.read.parquet(f"{folder}/plain-{place}.parquet")
        with lap() as measured:
            changes = (
                now if place == 0 else _differences(lake.spark.read.parquet(f"{folder}/plain-{place - 1}.parquet"), now)
            )
            changes.write.format("delta").mode("append").option("mergeSchema", True).save(target)
        if place:
            laps.append(measured)
        else:
            first = measured
    return first, middle(laps)


def _differences(before: DataFrame, now: DataFrame) -> DataFrame:
    row = F.struct(*COLUMNS)
    both = before.select("id", row.alias("before")).join(now.select("id", row.alias("now")), on="id", how="full")
    return both.where(~F.col("before").eqNullSafe(F.col("now"))).select(
        "id", *(F.col(f"now.{each}").alias(each) for each in COLUMNS[1:])
    )


@contextmanager
def running_postgres(home: Path) -> Iterator[str]:
    data = home / "postgres" / "data"
    data.parent.mkdir(parents=True)
    with (data.parent / "postgres.log").open("wb") as log:
        airflow_database.create(data, log)
        server = airflow_database.launch(data, log)
    try:
        assert wait_until(lambda: airflow_database.is_ready(data), "Starting Postgres", timeout=30)
        yield airflow_database.address(data).replace("+psycopg2", "")
    finally:
        server.send_signal(airflow_database.STOP)
        server.wait(30)
