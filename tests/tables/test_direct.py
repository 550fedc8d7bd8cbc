"""A few rows are written by delta-rs, and many by Spark. Readers can't tell which."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables import direct
from pulsar_lakehouse.tables import lake as lakes
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.direct import Merge, Within, append_batch
from pulsar_lakehouse.tables.lake import Lake, LakeTable
from tests.lake import own_home

NOTES = Table(
    name="gold.notes",
    columns="""
        id BIGINT, `saidBy` STRING, at TIMESTAMP, day DATE, price DECIMAL(20, 3), rate DOUBLE, payload BINARY,
        place STRUCT<partition: INT, entry: BIGINT>, names MAP<STRING, STRING>, lines ARRAY<STRUCT<n: INT>>
    """,
    partition_by=("day",),
    properties={"delta.enableChangeDataFeed": "true"},
)
FIRST = (
    1,
    'O\'Neill \\ "Ann"',
    datetime(2026, 1, 1, 12, 30, 0, 123_456, UTC),
    date(2026, 1, 1),
    Decimal("12345678901234567.125"),
    float("inf"),
    bytearray(b"\x00\xff"),
    (None, 7),
    {"a": "b"},
    [(1,), (None,)],
)
NOTHING = (2, *(None for _ in FIRST[1:]))
FAR: tuple[Any, ...] = (
    3,
    "",
    datetime(1600, 1, 1, tzinfo=UTC),
    date(9999, 12, 31),
    Decimal(0),
    -0.0,
    bytearray(),
    (1, None),
    {},
    [],
)


@pytest.fixture(params=["delta-rs", "Spark"])
def own(request: pytest.FixtureRequest, lake: Lake, tmp_path: Path) -> Iterator[Lake]:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(NOTES)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Spark":
            patch.setattr(lakes, "FEW_BYTES", -1)
        yield own
    writers = {commit.get("engineInfo", "")[:8] for commit in DeltaTable(own.table(NOTES.name).path).history()[:-1]}
    assert writers == {"delta-rs" if request.param == "delta-rs" else "Apache-S"}


@contextmanager
def few(own: Lake, *rows: tuple[Any, ...]) -> Iterator[tuple[LakeTable, DataFrame]]:
    """The table, to which few rows are written, and the rows."""
    frame = own.spark.createDataFrame(list(rows), NOTES.ddl)
    with cached(frame), own.sized(frame.count(), frame) as sized:
        yield sized.table(NOTES.name), frame


def held(lake: Lake) -> list[Row]:
    return lake.table(NOTES.name).read().orderBy("id").collect()


def rows_of(spark: SparkSession, *rows: tuple[Any, ...]) -> list[Row]:
    return spark.createDataFrame(list(rows), NOTES.ddl).collect()


def test_rows_are_appended_as_they_are(own: Lake) -> None:
    with few(own, FIRST, NOTHING, FAR) as (table, rows):
        table.append(rows)
    assert held(own) == rows_of(own.spark, FIRST, NOTHING, FAR)


def test_columns_are_told_by_name(own: Lake) -> None:
    with few(own, FIRST) as (table, rows):
        table.append(rows.select(*reversed(rows.columns)))
    assert held(own) == rows_of(own.spark, FIRST)


def test_rows_that_are_there_are_not_appended_again(own: Lake) -> None:
    with few(own, FIRST, NOTHING, FAR) as (table, rows):
        table.append(rows.where("id < 3"))
        table.append_missing(rows, on=["id"])
    assert held(own) == rows_of(own.spark, FIRST, NOTHING, FAR)


def test_a_row_is_inserted_or_updated(own: Lake) -> None:
    changed = (1, "Bob", *FIRST[2:])
    with few(own, FIRST) as (table, rows):
        table.upsert(rows, on=["id", "place"])
    with few(own, changed, FAR) as (table, rows):
        table.upsert(rows, on=["id", "place"])
    assert held(own) == rows_of(own.spark, changed, FAR)
    last = own.table(NOTES.name).version
    feed = own.table(NOTES.name).changes(last, last).select("_change_type", "id", "saidBy")
    assert sorted(map(tuple, feed.collect())) == [
        ("insert", 3, ""),
        ("update_postimage", 1, "Bob"),
        ("update_preimage", 1, FIRST[1]),
    ]


def test_only_some_columns_are_updated(own: Lake) -> None:
    with few(own, FIRST) as (table, rows):
        table.append(rows)
        table.upsert(rows.select("id", F.lit(1.5).alias("rate")), on=["id"], update=["rate"])
    assert held(own) == rows_of(own.spark, (*FIRST[:5], 1.5, *FIRST[6:]))


def test_a_merge_deletes_updates_and_inserts(own: Lake) -> None:
    values = {name: f"new.`{name}`" for name in NOTES.schema.names}
    within = Within(F.lit(True), {"day": (date(2025, 12, 29), date(9999, 12, 31))})
    how = Merge(
        on=["place"],
        within=within,
        delete="new.`saidBy` = ''",
        update={"id": "held.id + 10", "rate": "new.rate"},
        insert=values,
        insert_if="new.id < 6",
    )
    with few(own, FIRST, FAR) as (table, rows):
        table.append(rows)
    fifth, sixth = ((id, *FIRST[1:7], (id, id), *FIRST[8:]) for id in (5, 6))
    with few(own, FIRST, FAR, fifth, sixth) as (table, rows):
        table.merge(rows, how)
    assert held(own) == rows_of(own.spark, fifth, (11, *FIRST[1:]))


def test_a_commit_has_a_checksum(own: Lake) -> None:
    """Without it, Spark reads the log to learn the schema, and whether a table is empty."""
    assert own.table(NOTES.name).is_known_empty
    with few(own, FIRST, FAR) as (table, rows):
        table.append(rows)
        assert not own.table(NOTES.name).is_known_empty
        table.merge(rows, Merge(on=["id"], delete=True))
    assert own.table(NOTES.name).is_known_empty
    log = Path(own.table(NOTES.name).path) / "_delta_log"
    told = [json.loads(file.read_text()) for file in sorted(log.glob("[0-9]*.crc"))]
    assert [each["numFiles"] for each in told] == [0, 2, 0]
    assert len({json.dumps({key: each[key] for key in ("metadata", "protocol")}, sort_keys=True) for each in told}) == 1


def test_a_commit_does_not_have_the_values_of_its_rows(own: Lake) -> None:
    with few(own, (123_456_789, *FIRST[1:])) as (table, rows):
        table.upsert(rows, on=["id"])
        table.upsert(rows, on=["id"])
    log = Path(own.table(NOTES.name).path) / "_delta_log"
    told = [json.loads(line) for file in log.glob("*.json") for line in file.read_text().splitlines()]
    assert "123456789" not in json.dumps([each["commitInfo"] for each in told if "commitInfo" in each])


def test_a_merge_that_matches_nothing_is_no_commit(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(NOTES)
    with few(own, FIRST, FAR) as (table, rows):
        table.append(rows.where("id = 3"))
        table.merge(rows.where("id = 1"), Merge(on=["id"], delete=True))
        table.merge(rows.where("id = 0"), Merge(on=["id"], delete=True))
    assert DeltaTable(own.table(NOTES.name).path).version() == 1


def test_a_table_without_files_takes_a_merge(own: Lake) -> None:
    within = Within(F.expr("held.day = DATE'2026-01-01'"), {"day": (date(2026, 1, 1), date(2026, 1, 1))})
    with few(own, FIRST) as (table, rows):
        table.merge(rows.select("id"), Merge(on=["id"], delete=True))
        values = {name: f"new.`{name}`" for name in rows.columns}
        table.merge(rows, Merge(on=["id"], within=within, update=values, insert=values))
    assert held(own) == rows_of(own.spark, FIRST)


def test_rows_can_be_deleted_twice(own: Lake) -> None:
    with few(own, FIRST, FIRST, FAR) as (table, rows):
        table.append(rows)
        table.merge(rows.where("id = 1").select("place"), Merge(on=["place"], delete=True))
    assert held(own) == rows_of(own.spark, FAR)


@pytest.mark.parametrize(("kind", "bits"), [("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64)])
def test_keys_can_be_of_any_integers(lake: Lake, tmp_path: Path, kind: str, bits: int) -> None:
    own, least = Lake(lake.spark, own_home(lake.settings, tmp_path)), -(2 ** (bits - 1))
    own.create(Table(name="gold.notes", columns=f"id {kind}, n INT"))
    for n in (1, 2):
        rows = lake.spark.createDataFrame([(least, n), (-least - 1, n)], f"id {kind}, n INT")
        with cached(rows), own.sized(2, rows) as sized:
            sized.table("gold.notes").upsert(rows, on=["id"])
    assert sorted(map(tuple, own.table("gold.notes").read().collect())) == [
        (least, 2),
        (-least - 1, 2),
    ]


def test_only_few_bytes_are_read_to_merge(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs holds all rows of the files that can match in memory. Files of other days can't."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(NOTES)
    with few(own, FIRST, FAR) as (table, rows):
        table.append(rows)
        sizes = pa.table(DeltaTable(own.table(NOTES.name).path).get_add_actions())["size_bytes"].to_pylist()
        monkeypatch.setattr(direct, "MERGED_BYTES", max(sizes))
        first, within = rows.where("id = 1"), Within(F.lit(True), {"day": (FIRST[3], FIRST[3])})
        table.merge(first, Merge(on=["id"], within=within, update={"rate": "1.5"}))
        table.merge(first, Merge(on=["place"], update={"rate": "2.5"}))
    writers = [each["engineInfo"][:8] for each in DeltaTable(own.table(NOTES.name).path).history()]
    assert writers == ["Apache-S", "delta-rs", "delta-rs", "delta-rs"]
    assert held(own)[0].rate == 2.5


@pytest.mark.parametrize(
    ("columns", "row", "where"),
    [
        ("id BIGINT, price DECIMAL(20, 3)", (1, Decimal("12345678901234567.125")), "price = 12345678901234567.125BD"),
        ("id BIGINT, rate DOUBLE", (1, float("nan")), "rate > 5"),
        ("id BIGINT, item STRUCT<price: DECIMAL(20, 3)>", (1, (Decimal("12345678901234567.125"),)), "item.price > 1"),
    ],
)
def test_a_file_is_not_skipped_that_has_what_is_looked_for(
    lake: Lake, tmp_path: Path, columns: str, row: tuple[Any, ...], where: str
) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(Table(name="gold.notes", columns=columns))
    rows = lake.spark.createDataFrame([row], columns)
    with cached(rows), own.sized(rows.count(), rows) as sized:
        sized.table("gold.notes").append(rows)
    assert own.table("gold.notes").read().where(where).count() == 1


def test_heavy_rows_are_written_by_spark(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(NOTES)
    text = F.concat(F.lit("x" * 2**20), F.col("id").cast("string"))
    rows = lake.spark.range(20).select("id", text.alias("saidBy"), F.current_date().alias("day"))
    with cached(rows), own.sized(rows.count(), rows) as sized:
        sized.table(NOTES.name).append(rows)
    [last, _] = DeltaTable(own.table(NOTES.name).path).history()
    assert last["engineInfo"].startswith("Apache-Spark")


def test_the_batch_of_a_stream_is_appended_once(lake: Lake, tmp_path: Path) -> None:
    """Also by a process that goes on without the table's lease, beside others that append."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(Table(name="gold.numbers", columns="id BIGINT"))
    seen = DeltaTable(own.table("gold.numbers").path)
    own.table("gold.numbers").append(lake.spark.range(1))
    append_batch(own.settings, "gold.numbers", pa.table({"id": [1]}), ("stream", 0), seen=DeltaTable(seen.table_uri))
    with pytest.raises(DeltaError, match="Concurrent transaction"):
        append_batch(own.settings, "gold.numbers", pa.table({"id": [1]}), ("stream", 0), seen=seen)
    assert sorted(row.id for row in own.table("gold.numbers").read().collect()) == [0, 1]
    assert own.table("gold.numbers").committed_batch("stream") == 0
