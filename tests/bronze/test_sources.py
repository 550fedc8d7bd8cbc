"""What lands of a source: the differences between its snapshots, whatever it is, and nothing of one that is wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse import DeltaTable, Files, Postgres
from pulsar_lakehouse.bronze.source_readers import why_unread
from pulsar_lakehouse.bronze.sources import SourceLanding, news
from pulsar_lakehouse.contracts.sources import Source
from pulsar_lakehouse.errors import SourceError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.records import snapshot_record
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home
from tests.postgres import in_postgres

FIELDS = "id BIGINT NOT NULL, name STRING"
Land = Callable[..., int]
Change = tuple[str, dict[str, Any] | None]


@pytest.fixture
def own(lake: Lake, tmp_path: Path) -> Lake:
    return Lake(lake.spark, own_home(lake.settings, tmp_path / "home"))


def land(lake: Lake, source: Source, *, keys: tuple[str, ...] = ("id",), accept_deletes: bool = False) -> int:
    return SourceLanding(lake, source, keys, always=True, accept_deletes=accept_deletes)(Permit())


def snapshots(lake: Lake, name: str = "regions") -> list[list[Change]]:
    """The changes that landed, snapshot by snapshot."""
    rows = query(lake.settings, f"SELECT ledger_id, key, payload FROM bronze.{name} ORDER BY ledger_id, entry_id")
    found: dict[int, list[Change]] = {}
    for number, key, payload in rows.fetchall():
        found.setdefault(number, []).append((key, payload and json.loads(payload)))
    return list(found.values())


def csv(folder: Path, text: str, name: str = "regions.csv") -> Files:
    (folder / name).write_text(text)
    return Files("regions", FIELDS, path=str(folder / "*.csv"))


def test_only_differences_land(own: Lake, tmp_path: Path) -> None:
    for text in ("id,name\n1,North\n2,South\n", "id,name\n2,South\n1,North\n", "id,name\n1,Nord\n3,West\n"):
        land(own, csv(tmp_path, text))
    assert snapshots(own) == [
        [("1", {"id": 1, "name": "North"}), ("2", {"id": 2, "name": "South"})],
        [("1", {"id": 1, "name": "Nord"}), ("2", None), ("3", {"id": 3, "name": "West"})],
    ]


def test_a_key_comes_back(own: Lake, tmp_path: Path) -> None:
    for text in ("id,name\n1,North\n2,South\n", "id,name\n1,North\n", "id,name\n1,North\n2,South\n"):
        land(own, csv(tmp_path, text))
    assert snapshots(own)[1:] == [[("2", None)], [("2", {"id": 2, "name": "South"})]]


def test_positions_and_times_are_those_of_the_snapshot(
    own: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1e9)
    land(own, csv(tmp_path, "id,name\n1,North\n2,South\n"))
    rows = query(own.settings, "SELECT ledger_id, entry_id, event_time, publish_time FROM bronze.regions ORDER BY ALL")
    at = datetime.fromtimestamp(1e9, UTC)
    assert rows.fetchall() == [(10**12, 0, at, at), (10**12, 1, at, at)]


def test_several_files_are_one_table(own: Lake, tmp_path: Path) -> None:
    csv(tmp_path, "name,more,id\nNorth,x,1\n", "a.csv")
    land(own, csv(tmp_path, 'id,name\n2,\n3,""\n', "b.csv"))
    assert snapshots(own) == [[("1", {"id": 1, "name": "North"}), ("2", {"id": 2}), ("3", {"id": 3, "name": ""})]]


TYPES = (
    "id BIGINT NOT NULL, is_on BOOLEAN, small INT, ratio DOUBLE, price DECIMAL(10, 2), day DATE, at TIMESTAMP, "
    "raw BINARY, tags ARRAY<STRING>"
)
TYPED = {
    "id": 1,
    "is_on": True,
    "small": 7,
    "ratio": 0.5,
    "price": "1.50",
    "day": "2026-01-31",
    "raw": "AP8=",
    "tags": ["a", "b"],
}


def test_types_of_postgres(own: Lake, postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute(
            "CREATE TABLE typed AS SELECT 1::bigint AS id, true AS is_on, 7 AS small, 0.5::real AS ratio, "
            "1.50 AS price, "
            r"DATE '2026-01-31' AS day, TIMESTAMPTZ '2026-01-31 12:00:00.5+02' AS at, '\x00ff'::bytea AS raw, "
            """'["a","b"]'::jsonb AS tags"""
        )
    there = Lake(own.spark, in_postgres(own.settings, postgres))
    land(there, Postgres("typed", TYPES))
    assert snapshots(there, "typed") == [[("1", TYPED | {"at": "2026-01-31 10:00:00.5+00"})]]


def test_types_of_parquet_and_delta(own: Lake, tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "is_on": [True],
            "small": pa.array([7], pa.int8()),
            "ratio": pa.array([0.5], pa.float32()),
            "price": pa.array(["1.50"]).cast(pa.decimal128(10, 2)),
            "day": pa.array(["2026-01-31"]).cast(pa.date32()),
            "at": pa.array(["2026-01-31T10:00:00.5Z"]).cast(pa.timestamp("us", "UTC")),
            "raw": [b"\0\xff"],
            "tags": [["a", "b"]],
        }
    )
    pq.write_table(table, tmp_path / "typed.parquet")
    write_deltalake(str(tmp_path / "delta"), table)
    land(own, Files("typed", TYPES, path=str(tmp_path / "typed.parquet")))
    land(own, DeltaTable("shared", TYPES, path=str(tmp_path / "delta")))
    landed = [[("1", TYPED | {"at": "2026-01-31T10:00:00.500000Z"})]]
    assert (snapshots(own, "typed"), snapshots(own, "shared")) == (landed, landed)


def test_files_of_different_types_are_one_table(own: Lake, tmp_path: Path) -> None:
    """The second file has a larger type, another scale, and texts by other codes."""
    for place, (whole, scale) in enumerate([(pa.int16(), 1), (pa.int64(), 2)]):
        rows = {
            "id": pa.array([2**14 + 2**40 * place], whole),
            "price": pa.array([f"1.{'55'[:scale]}"]).cast(pa.decimal128(10, scale)),
            "name": pa.array(["North", "South"][place : place + 1]).dictionary_encode(),
        }
        pq.write_table(pa.table(rows), tmp_path / f"{place}.parquet")
    fields = "id BIGINT, price DECIMAL(10, 2), name STRING"
    land(own, Files("prices", fields, path=str(tmp_path / "*.parquet")))
    assert [row for _, row in snapshots(own, "prices")[0]] == [
        {"id": 2**14 + 2**40, "price": "1.55", "name": "South"},
        {"id": 2**14, "price": "1.5", "name": "North"},
    ]


def test_a_key_of_several_columns(own: Lake, tmp_path: Path) -> None:
    csv(tmp_path, 'id,name\n7,"a ""b"""\n')
    land(own, csv(tmp_path, 'id,name\n7,"a ""b"""\n'), keys=("id", "name"))
    assert [key for key, _ in snapshots(own)[0]] == ['[7,"a \\"b\\""]']


def test_a_value_of_another_type_lands_as_it_is(own: Lake, tmp_path: Path) -> None:
    """Merging finds the message malformed, and says why."""
    land(own, csv(tmp_path, "id,name\n1.5,North\n007,South\n"))
    assert snapshots(own) == [[("1.5", {"id": "1.5", "name": "North"}), ("7", {"id": 7, "name": "South"})]]


def test_a_table_of_postgres(own: Lake, postgres: str) -> None:
    there = Lake(own.spark, in_postgres(own.settings, postgres))
    source = Postgres("places", FIELDS, table="public.regions")
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE regions (id int PRIMARY KEY, name varchar, more text)")
        connection.execute("INSERT INTO regions VALUES (1, 'North'), (2, 'a, \"b\"\nc'), (3, NULL)")
    land(there, source)
    with psycopg.connect(postgres) as connection:
        connection.execute("UPDATE regions SET more = 'x'; DELETE FROM regions WHERE id = 3")
    land(there, source)
    assert snapshots(there, "places") == [
        [("1", {"id": 1, "name": "North"}), ("2", {"id": 2, "name": 'a, "b"\nc'}), ("3", {"id": 3})],
        [("3", None)],
    ]


def refused(lake: Lake, source: Source) -> str:
    with pytest.raises(SourceError) as error:
        land(lake, source)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id,name\n1,North\n2,Sou", "{file}: ends within a line, without a line break: half of it may be missing"),
        ('id,name\n1,North\n2,"Sou\n', "{file}: ends within a quoted text: half of it may be missing"),
        ("id,name\n1,North\n2\n", "{file}: CSV parse error: Expected 2 columns, got 1"),
        ("id,title\n1,North\n", "{path} has no column name: it has id, title"),
        ("", "{path} has no column id: it has none"),
        ("id,name\n1,North\n1,South\n", "{path}: id, the key, is 1 in 2 rows"),
        ("id,name\n,North\n", "{path}: id, the key, is NULL in 1 of 1 rows"),
        (
            "id,name\n1,North\n",
            "its snapshot lacks 2 of 3 rows, and max_deletes is 0.5: nothing has landed; if they are gone, run "
            "`lakehouse land regions --accept-loss`",
        ),
    ],
)
def test_a_wrong_file_lands_nothing(text: str, line: str, own: Lake, tmp_path: Path) -> None:
    land(own, csv(tmp_path, "id,name\n1,North\n2,South\n3,West\n"))
    said = refused(own, csv(tmp_path, text))
    assert said == f"{line.format(file='regions.csv', path=f'files {tmp_path}/*.csv')}"
    assert len(snapshots(own)) == 1


def test_no_file_deletes_nothing(own: Lake, tmp_path: Path) -> None:
    land(own, csv(tmp_path, "id,name\n1,North\n"))
    (tmp_path / "regions.csv").unlink()
    source = Files("regions", FIELDS, path=str(tmp_path / "*.csv"))
    assert refused(own, source) == f"files {tmp_path}/*.csv: there is no such file in {tmp_path}"


def test_a_parquet_file_that_is_cut(own: Lake, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["North"]}), tmp_path / "regions.parquet")
    whole = (tmp_path / "regions.parquet").read_bytes()
    (tmp_path / "regions.parquet").write_bytes(whole[:-20])
    said = refused(own, Files("regions", FIELDS, path=str(tmp_path / "regions.parquet")))
    assert said.startswith("regions.parquet: Parquet magic bytes not found in footer")


def test_a_postgres_that_is_away(own: Lake) -> None:
    there = Lake(own.spark, in_postgres(own.settings, "postgresql://somebody:secret@localhost:1/shop"))
    said = refused(there, Postgres("regions", FIELDS))
    assert said.startswith("Postgres, regions: connection failed: ")
    assert "secret" not in said
    assert "\n" not in said


def test_a_postgres_that_fails_amid_its_rows(own: Lake, postgres: str) -> None:
    there = Lake(own.spark, in_postgres(own.settings, postgres))
    rows = "(SELECT id, (1 / (id - 90000))::text AS name FROM generate_series(1, 100000) AS id)"
    assert refused(there, Postgres("regions", FIELDS, table=rows)) == f"Postgres, {rows}: division by zero"
    assert not there.table("bronze.regions").exists()


def test_a_postgres_without_address(own: Lake) -> None:
    wanted = "source regions: set LAKEHOUSE_POSTGRES__URL to its address"
    assert refused(own, Postgres("regions", FIELDS)) == wanted


def test_columns_of_postgres_that_have_changed(own: Lake, postgres: str) -> None:
    there = Lake(own.spark, in_postgres(own.settings, postgres))
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE changed (id text, name text)")
    assert refused(there, Postgres("changed", FIELDS)) == ("postgres changed: id is text there, and declared as bigint")
    found = [why_unread(there.settings, Postgres("changed", fields)) for fields in ("id STRING", "title STRING")]
    assert found == ["", "postgres changed has no column title: it has id, name"]


def test_a_delta_table_that_is_not_there(own: Lake, tmp_path: Path) -> None:
    source = DeltaTable("regions", FIELDS, path=str(tmp_path / "none"))
    assert refused(own, source) == f"delta {tmp_path}/none: there is no Delta table in {tmp_path}/none"


def test_deletes_that_are_accepted(own: Lake, tmp_path: Path) -> None:
    land(own, csv(tmp_path, "id,name\n1,North\n2,South\n3,West\n"))
    assert land(own, csv(tmp_path, "id,name\n1,North\n"), accept_deletes=True) == 2


def test_a_share_of_deletes_is_declared(own: Lake, tmp_path: Path) -> None:
    land(own, csv(tmp_path, "id,name\n1,North\n2,South\n3,West\n"))
    less = csv(tmp_path, "id,name\n1,North\n2,South\n")
    with pytest.raises(SourceError, match=r"its snapshot lacks 1 of 3 rows, and max_deletes is 0\.3"):
        land(own, replace(less, max_deletes=0.3))
    assert land(own, less) == 1


def test_files_are_read_when_they_have_changed(own: Lake, tmp_path: Path) -> None:
    source = csv(tmp_path, "id,name\n1,North\n")
    found = [news(own.settings, source)]
    land(own, source)
    found.append(news(own.settings, source))
    csv(tmp_path, "id,name\n1,South\n")
    found.append(news(own.settings, source))
    assert found == ["bronze.regions: no table", None, f"regions: files {tmp_path}/*.csv has changed"]


def test_a_delta_table_is_read_when_it_has_a_new_version(own: Lake, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "name": ["North"]})
    write_deltalake(str(tmp_path / "delta"), rows)
    source = DeltaTable("regions", FIELDS, path=str(tmp_path / "delta"))
    land(own, source)
    before = news(own.settings, source)
    write_deltalake(str(tmp_path / "delta"), pa.table({"id": [2], "name": ["South"]}), mode="append")
    assert (before, news(own.settings, source)) == (None, f"regions: delta {tmp_path}/delta has changed")


def test_postgres_is_read_as_often_as_declared(own: Lake, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Lake(own.spark, in_postgres(own.settings, postgres))
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE often AS SELECT 1::bigint AS id, 'North' AS name")
    source = Postgres("often", FIELDS, every="1 hour")
    land(there, source)
    read_at = snapshot_record(there.settings, "often").read_at  # type: ignore[union-attr]
    found = []
    for minutes in (59, 60):
        monkeypatch.setattr("time.time", lambda minutes=minutes: read_at + 60 * minutes)
        found.append(news(there.settings, source))
    assert found == [None, "often: a snapshot is due, every 1 hour"]


def test_a_lost_record_lands_nothing_twice(own: Lake, tmp_path: Path) -> None:
    source = csv(tmp_path, "id,name\n1,North\n")
    land(own, source)
    (own.settings.home / "records" / "source-regions.json").unlink()
    due = news(own.settings, source)
    assert (due, land(own, source)) == (
        "regions: a snapshot is due, as bronze.regions is not known to be that of the last one",
        0,
    )


def test_a_clock_that_goes_back(own: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(own, csv(tmp_path, "id,name\n1,North\n"))
    monkeypatch.setattr("time.time", lambda: 1e9)
    land(own, csv(tmp_path, "id,name\n1,South\n"))
    assert snapshots(own) == [[("1", {"id": 1, "name": "North"})], [("1", {"id": 1, "name": "South"})]]
