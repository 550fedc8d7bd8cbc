"""A table beside the one in a real Postgres of which it is a replica."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.inspection import comparison, postgres_texts
from pulsar_lakehouse.inspection.comparison import ONLY_HERE, ONLY_THERE, Comparison, Difference, Replica, compare
from pulsar_lakehouse.settings import Settings, load_settings
from tests.postgres import in_postgres

TIME = pa.timestamp("us", "UTC")
NOON = datetime(2026, 1, 5, 12, 0, 0, 120_000, tzinfo=UTC)
MONTH, DAY, HOUR = 2_629_800_000_000, 86_400_000_000, 3_600_000_000

VALUES: list[tuple[str, str, pa.DataType, Any, Any]] = [
    ("boolean", "'t'", pa.bool_(), True, False),
    ("integer", "-7", pa.int32(), -7, 7),
    ("bigint", "9007199254740993", pa.int64(), 9007199254740993, 9007199254740992),
    ("numeric(10, 2)", "1.50", pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.51")),
    ("numeric", "1.50", pa.decimal128(38, 9), Decimal("1.50"), Decimal("1.500000001")),
    ("numeric(10, 2)", "100.00", pa.int64(), 100, 1),
    ("numeric(10, 2)", "1.50", pa.string(), "1.50", "1.5"),
    ("numeric(10, 2)", "0.10", pa.float64(), 0.1, 0.10000000000000002),
    ("money", "1.50", pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.60")),
    ("real", "0.1", pa.float32(), 0.1, 0.2),
    ("real", "0.1", pa.float64(), 0.1, 0.10001),
    ("real", "0.1", pa.float64(), 0.10000000149011612, 1e300),
    ("double precision", "0.5", pa.float32(), 0.5, 0.25),
    ("double precision", "1e15", pa.float64(), 1e15, 1e15 + 0.125),
    ("double precision", "'NaN'", pa.float64(), float("nan"), None),
    ("double precision", "'-Infinity'", pa.float64(), float("-inf"), float("inf")),
    ("date", "'2026-01-05'", pa.date32(), date(2026, 1, 5), date(2026, 1, 6)),
    ("timestamp", "'2026-01-05 12:00:00.12'", TIME, NOON, NOON.replace(microsecond=120_001)),
    ("timestamptz", "'2026-01-05 14:00:00.12+02'", TIME, NOON, NOON.replace(hour=14)),
    ("timestamp", "'2026-01-05 12:00:00.12'", pa.timestamp("us"), NOON.replace(tzinfo=None), None),
    ("time", "'01:00:00.5'", pa.int64(), HOUR + 500_000, HOUR),
    ("interval", "'1 year 2 mons 3 days 01:00:00.5'", pa.int64(), 14 * MONTH + 3 * DAY + HOUR + 500_000, 0),
    ("interval", "'-1 mons -00:00:00.5'", pa.int64(), -MONTH - 500_000, -MONTH),
    ("text", """E'a "b", \\\\ c\\nd'""", pa.string(), 'a "b", \\ c\nd', 'a "b", \\ c\n'),
    ("text", "''", pa.string(), "", None),
    ("text", "'NULL'", pa.string(), "NULL", None),
    ("text", "NULL", pa.string(), None, ""),
    ("char(4)", "'ab'", pa.string(), "ab  ", "ab"),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", pa.string(), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a"),
    ("inet", "'10.0.0.1'", pa.string(), "10.0.0.1", "10.0.0.1/32"),
    ("shop.mood", "'happy'", pa.string(), "happy", "sad"),
    ("shop.cents", "1234567890123456789012", pa.decimal128(30, 0), Decimal("1234567890123456789012"), Decimal("1")),
    ("jsonb", """'{"b": 1, "a": [1.0, true, null]}'""", pa.string(), '{"a":[1,true,null],"b":1}', '{"a":[1,1],"b":1}'),
    ("json", """'{"b": 1e2}'""", pa.string(), '{"b": 100}', '{"b": "100"}'),
    ("jsonb", "'1'", pa.string(), "1", "one"),
    ("bytea", r"'\x00FF'", pa.binary(), b"\x00\xff", b"\x00"),
    ("bytea", "''", pa.binary(), b"", None),
    ("integer[]", "'{1,NULL,3}'", pa.list_(pa.int32()), [1, None, 3], [1, 3]),
    ("text[]", """'{a,NULL,"b,c",""}'""", pa.list_(pa.string()), ["a", None, "b,c", ""], ["a", None, "b,c", None]),
    ("numeric[]", "'{1.50,2}'", pa.list_(pa.decimal128(5, 2)), [Decimal("1.50"), Decimal("2.00")], []),
    ("real[]", "'{0.1,1}'", pa.list_(pa.float32()), [0.1, 1.0], [0.1, 1.5]),
    ("boolean[]", "'{t,f}'", pa.list_(pa.bool_()), [True, False], [True, True]),
    ("timestamptz[]", "'{2026-01-05 14:00:00.12+02}'", pa.list_(TIME), [NOON], [None]),
    ("text[]", "'{}'", pa.list_(pa.string()), [], None),
]
"""The type and the value of a column in Postgres, and the type here, with the same value and with another one."""


@pytest.fixture
def execute(postgres: str) -> Callable[[str], None]:
    """Runs SQL in an empty schema `shop`."""

    def execute(sql: str) -> None:
        with psycopg.connect(postgres) as connection:
            connection.execute(sql)

    execute("DROP SCHEMA IF EXISTS shop CASCADE; CREATE SCHEMA shop")
    return execute


@pytest.fixture
def project(postgres: str, tmp_path: Path) -> Settings:
    return in_postgres(load_settings(home=tmp_path), postgres)


def write(settings: Settings, rows: list[dict[str, Any]], **types: pa.DataType) -> None:
    """Replace the table `silver.customers`."""
    table = pa.Table.from_pylist(rows, pa.schema(types))
    write_deltalake(settings.table_path("silver.customers"), table, mode="overwrite", schema_mode="overwrite")


def compared(settings: Settings, keys: tuple[str, ...] = ("id",), **more: Any) -> Comparison:
    replica = Replica(**{"table": "silver.customers", "keys": keys, "original": "shop.customers", **more})
    return compare(settings, replica)


def test_values_are_equal_whatever_their_types_and_only_if_they_are(
    project: Settings, execute: Callable[[str], None]
) -> None:
    execute("CREATE TYPE shop.mood AS ENUM ('sad', 'happy'); CREATE DOMAIN shop.cents AS numeric(30, 0)")
    columns = ", ".join(f"c{place} {kind}" for place, (kind, *_) in enumerate(VALUES))
    values = ", ".join(value for _, value, *_ in VALUES)
    execute(f"CREATE TABLE shop.customers (id integer, {columns}); INSERT INTO shop.customers VALUES (1, {values})")
    execute("INSERT INTO shop.customers VALUES (2)")
    for same in (True, False):
        row = {f"c{place}": right if same else wrong for place, (*_, right, wrong) in enumerate(VALUES)}
        kinds = {f"c{place}": kind for place, (_, _, kind, *_) in enumerate(VALUES)}
        write(project, [{"id": 1, **row}, {"id": 2}], id=pa.int64(), **kinds)
        found = compared(project)
        assert found.columns == ("id", *row)
        assert [each.what for each in found.differences] == ([] if same else list(row))
        assert (found.equal, found.differ) == ((2, 0) if same else (1, 1))


CUSTOMERS = {"id": pa.int64(), "name": pa.string(), "city": pa.string(), "lsn": pa.int64(), "deleted_at": TIME}


@pytest.fixture
def customers(project: Settings, execute: Callable[[str], None]) -> Settings:
    """Some are the same as in Postgres."""
    execute("""
        CREATE TABLE shop.customers (id integer PRIMARY KEY, name text, city text, password text);
        INSERT INTO shop.customers VALUES
            (1, 'Ada', 'Berlin'), (2, 'Bo', 'Porto'), (3, 'Cy', NULL), (4, 'Di', 'Rome'), (5, 'Ed', 'Oslo')
    """)
    rows = [
        {"id": 1, "name": "Ada", "city": "Berlin"},
        {"id": 2, "name": "Bo", "city": "Lisbon"},
        {"id": 3, "name": "Cid", "city": ""},
        {"id": 5, "name": "Ed", "city": "Oslo", "deleted_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"id": 6, "name": "Flo", "city": "Kyiv", "deleted_at": datetime(2126, 1, 1, tzinfo=UTC)},
        {"id": 7, "name": "Gus", "city": "Bonn", "deleted_at": datetime(2026, 1, 1, tzinfo=UTC)},
    ]
    write(project, [{"lsn": 9, **row} for row in rows], **CUSTOMERS)
    return project


LATEST: dict[str, Any] = {"columns": ("id", "name", "city", "lsn"), "where": "deleted_at IS NULL OR deleted_at > now()"}

DIFFERENCES = (
    Difference(what="name", rows=1, examples=(("3", "Cid", "Cy"),)),
    Difference(what="city", rows=2, examples=(("2", "Lisbon", "Porto"), ("3", "", None))),
    Difference(what=ONLY_HERE, rows=1, examples=(("6", "a row", "no row"),)),
    Difference(what=ONLY_THERE, rows=2, examples=(("4", "no row", "a row"), ("5", "no row", "a row"))),
)


@pytest.mark.parametrize("most_keys", [10_000, 1])
def test_rows_differ_or_are_on_one_side(customers: Settings, monkeypatch: pytest.MonkeyPatch, most_keys: int) -> None:
    """Postgres is asked for the rows that differ, or for all if these are many."""
    monkeypatch.setattr(comparison, "ASKED_KEYS", most_keys)
    assert compared(customers, **LATEST) == Comparison(
        version=0,
        columns=("id", "name", "city"),
        left_out={ONLY_HERE: ("lsn",), ONLY_THERE: ("password",), "not comparable": ()},
        equal=1,
        differ=2,
        only_here=1,
        only_there=2,
        differences=DIFFERENCES,
    )


def test_a_few_rows_are_shown(customers: Settings, execute: Callable[[str], None]) -> None:
    execute("DELETE FROM shop.customers; INSERT INTO shop.customers SELECT n, 'x' FROM generate_series(10, 19) n")
    [_, missing] = compared(customers, **LATEST).differences
    assert missing == Difference(
        what=ONLY_THERE, rows=10, examples=tuple((key, "no row", "a row") for key in ("10", "11", "12"))
    )


def test_rows_that_differ_are_looked_at_again_with_each_version(
    customers: Settings, monkeypatch: pytest.MonkeyPatch, execute: Callable[[str], None]
) -> None:
    """One that becomes the same is equal, one that is gone from both sides too, and one that has drifted is not."""
    versions = iter([
        [(1, "Ada", "Berlin"), (2, "Bo", "Porto"), (3, "Cid", "Roma"), (4, "Di", "Rome"), (6, "Flo", "Kyiv")],
        [(1, "not looked at", "Berlin"), (2, "Bo", "Porto"), (3, "Cid", "Roma"), (4, "Di", "Rome"), (5, "Ed", "Oslo")],
        None,
    ])  # fmt: skip

    def a_run(is_outdated: Callable[[], bool], message: str, timeout: float) -> bool:
        assert not is_outdated()
        assert 0 < timeout < 60
        told.append(message)
        if (rows := next(versions)) is None:
            monkeypatch.setattr(comparison, "monotonic", lambda: float("inf"))
            return False
        write(customers, [dict(zip(("id", "name", "city"), row, strict=True)) for row in rows], **CUSTOMERS)
        return is_outdated()

    told: list[str] = []
    monkeypatch.setattr(comparison, "wait_until", a_run)
    replica = Replica(table="silver.customers", keys=("id",), original="shop.customers", **LATEST)
    found = compare(customers, replica, wait=60)
    assert told == [f"{count} rows differ: waiting for a new version of silver.customers" for count in (5, 3, 1)]
    assert (found.version, found.equal, found.differ) == (2, 5, 1)
    assert [(each.what, each.examples) for each in found.differences] == [
        ("name", (("3", "Cid", "Cy"),)),
        ("city", (("3", "Roma", None),)),
    ]


def test_a_row_of_several_keys_is_looked_for_by_all_of_them(project: Settings, execute: Callable[[str], None]) -> None:
    execute("""
        CREATE TYPE shop.currency AS ENUM ('EUR', 'USD');
        CREATE TABLE shop.customers (number numeric, currency shop.currency, since timestamptz, cents integer);
        INSERT INTO shop.customers VALUES (1.0, 'EUR', '2026-01-05 12:00+00', 1), (1.0, 'USD', '2026-01-05 12:00+00', 2)
    """)
    rows = [
        {"number": 1, "currency": each, "since": NOON.replace(microsecond=0), "cents": 1} for each in ("EUR", "USD")
    ]
    write(project, rows, number=pa.int64(), currency=pa.string(), since=TIME, cents=pa.int32())
    found = compared(project, keys=("number", "currency", "since"))
    assert found.differences == (
        Difference(what="cents", rows=1, examples=(("1", "USD", "2026-01-05 12:00:00", "1", "2"),)),
    )


def test_a_select_renames_columns_and_leaves_out_rows(customers: Settings) -> None:
    rows = "(SELECT id + 10 AS id, upper(name) AS name FROM shop.customers WHERE id % 2 = 1)"
    write(customers, [{"id": 11, "name": "ADA"}, {"id": 13, "name": "CY"}, {"id": 15, "name": "ED"}], **CUSTOMERS)
    found = compared(customers, original=rows)
    assert (found.equal, found.differences) == (3, ())


def test_structs_are_not_compared(project: Settings, execute: Callable[[str], None]) -> None:
    execute("CREATE TABLE shop.customers (id integer, address jsonb, tags jsonb)")
    write(project, [], id=pa.int64(), address=pa.struct({"city": pa.string()}), tags=pa.list_(pa.string()))
    found = compared(project)
    assert (found.equal, found.left_out["not comparable"]) == (0, ("address", "tags"))


@pytest.mark.parametrize(
    ("original", "error", "told"),
    [
        (
            "(SELECT id AS number FROM shop.customers)",
            ConfigurationError,
            "has no column id, the key of silver.customers: "
            "give a SELECT that has, such as (SELECT number AS id, name FROM customers)",
        ),
        ("shop.nothing", LakehouseError, 'relation "shop.nothing" does not exist'),
        ("(SELECT 1 / (5 - id) AS id FROM shop.customers)", LakehouseError, "division by zero"),
        ("(DELETE FROM shop.customers RETURNING id)", LakehouseError, "syntax error"),
        ("(SELECT 1 AS id FROM shop.customers)", LakehouseError, "several rows have the same id"),
        ("(SELECT nullif(id, 5) AS id FROM shop.customers)", LakehouseError, "a row has no id"),
    ],
)
def test_rows_that_cannot_be_compared(
    customers: Settings, original: str, error: type[LakehouseError], told: str
) -> None:
    with pytest.raises(error) as raised:
        compared(customers, original=original)
    assert original in str(raised.value)
    assert told in str(raised.value)


def test_postgres_fails_midway(customers: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_texts, "LONGEST_ROW", 1024)
    rows = "(SELECT 1 / (9000 - id) AS id FROM generate_series(1, 9000) AS id)"
    with pytest.raises(LakehouseError) as raised:
        compared(customers, original=rows)
    assert str(raised.value) == f"Postgres, {rows}: division by zero"


def test_a_key_that_is_here_twice(customers: Settings) -> None:
    write(customers, [{"id": 1}, {"id": 1}], **CUSTOMERS)
    with pytest.raises(LakehouseError, match=r"^silver.customers: several rows have the same"):
        compared(customers, **LATEST)


def test_rows_that_postgres_would_hide_are_an_error(
    customers: Settings, postgres: str, execute: Callable[[str], None]
) -> None:
    execute("""
        DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA shop TO reader;
        GRANT SELECT ON shop.customers TO reader; ALTER TABLE shop.customers ENABLE ROW LEVEL SECURITY
    """)
    with pytest.raises(LakehouseError, match="row-level security"):
        compared(in_postgres(customers, postgres.replace("postgres@", "reader@")), **LATEST)


def test_a_password_is_not_shown(customers: Settings, postgres: str) -> None:
    for url in ("postgresql://reader:kept-secret@127.0.0.1:1/shop", "postgresql//reader:kept-secret@host"):
        with pytest.raises(LakehouseError) as raised:
            compared(in_postgres(customers, url), **LATEST)
        assert "kept-secret" not in str(raised.value)
