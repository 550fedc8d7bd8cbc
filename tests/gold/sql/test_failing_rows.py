"""Rows on which the SELECT of a declared table fails: they are reported, and the other rows reach the table."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructType

from pulsar_lakehouse import function
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS, SqlTable, read_declaration, with_parameters
from pulsar_lakehouse.gold.sql.quarantine import clear_undeclared
from pulsar_lakehouse.gold.sql.refresh import Refreshed, refresh
from pulsar_lakehouse.spark.functions import declare
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home, read

PARTS = Table(
    name="silver.parts",
    columns="id BIGINT, kind STRING, amount STRING, pieces BIGINT",
    properties={"delta.enableChangeDataFeed": "true"},
)
HEADER = "-- keys: kind\n-- refresh: incremental\n"
BY_KIND = """SELECT
    coalesce(kind, 'none') AS kind,
    sum(CAST(amount AS DECIMAL(9, 2))) FILTER (WHERE pieces > 0) AS amount,
    sum(pieces) AS pieces,
    100 DIV sum(pieces) AS rate
FROM silver.parts
WHERE CAST(right(kind, 1) AS INT) > 0 OR kind IS NULL
GROUP BY ALL
HAVING count(DISTINCT id) > 0
"""


@dataclass(frozen=True)
class Home:
    lake: Lake
    folder: Path

    def put(self, *rows: tuple[int, str | None, str | None, int]) -> None:
        self.lake.table(PARTS.name).append(self.lake.spark.createDataFrame(list(rows), PARTS.ddl))

    def remove(self, where: str) -> None:
        DeltaTable(self.lake.table(PARTS.name).path).delete(where)

    def table(self, sql: str = BY_KIND, header: str = HEADER) -> SqlTable:
        (self.folder / "x.sql").write_text(header + sql)
        return read_declaration(self.folder / "x.sql")

    def refresh(self, sql: str = BY_KIND, header: str = HEADER) -> Refreshed:
        return refresh(self.lake, self.table(sql, header))

    def held(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in read(self.lake.settings, "gold.x"))

    def quarantined(self) -> dict[str | None, str]:
        return {row["keys"]: row["reason"] for row in read(self.lake.settings, SQL_ROWS.name)}


@pytest.fixture
def home(lake: Lake, tmp_path: Path) -> Home:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(PARTS)
    return Home(own, tmp_path)


MOST = 2**63 - 1


def test_rows_of_a_table_that_is_no_longer_declared_leave_quarantine(home: Home) -> None:
    home.put((1, "a1", "abc", 1))
    home.refresh()
    clear_undeclared(home.lake, ["gold.x", "gold.y"])
    assert list(home.quarantined()) == ['{"kind":"a1"}']
    clear_undeclared(home.lake, ["gold.y"])
    assert home.quarantined() == {}


def test_what_fails_is_told_and_all_else_is_as_ever(home: Home) -> None:
    home.put((1, "a1", "2.5", 4), (2, "a1", "1", 1), (3, "b1", "abc", 1), (4, "b1", "1", 1), (5, "a0", "abc", 1))
    home.put((6, "c1", "1", 1), (7, "c1", "1", -1), (8, "d1", "1", MOST), (9, "d1", "1", MOST), (10, "ex", "1", 1))
    home.put((11, "f1", "abc", 0), (12, "f1", "3", 50))
    done = home.refresh()
    assert (done.kind, done.reason, done.inserted, done.quarantined) == ("full", "rows fail", 2, 4)
    assert home.held() == [("a1", 3.5, 5, 20), ("f1", 3.0, 50, 2)]
    assert home.quarantined() == {
        '{"kind":"b1"}': "amount: CASE WHEN pieces > 0 THEN CAST(amount AS DECIMAL(9, 2)) END fails with pieces = 1, "
        "amount = abc",
        '{"kind":"c1"}': "rate: 100 DIV SUM(pieces) fails",
        '{"kind":"d1"}': "pieces: SUM(pieces) fails; rate: 100 DIV SUM(pieces) fails",
        '{"kind":"ex"}': "WHERE: CAST(RIGHT(kind, 1) AS INT) > 0 OR kind IS NULL fails with kind = ex",
    }
    done = home.refresh()
    assert (done.reason, done.quarantined) == ("nothing new", 4)
    home.remove("id IN (3, 7, 9, 10)")
    home.put((3, "b1", "2", 1))
    done = home.refresh()
    assert (done.reason, done.inserted, done.quarantined) == ("rows are in quarantine", 3, 0)
    assert (home.held()[1:4], home.quarantined()) == (
        [("b1", 3.0, 2, 50), ("c1", 1.0, 1, 100), ("d1", 1.0, MOST, 0)],
        {},
    )


def test_without_groups_each_row_is_one(home: Home) -> None:
    select = (
        "SELECT p.kind AS kind, CAST(p.amount AS INT) AS n, 10 DIV n AS each FROM silver.parts AS p WHERE pieces > 0"
    )
    home.put((1, "a", "2", 1), (2, "b", "0", 1), (3, "c", "x", 1), (4, "d", "x", 0))
    assert (home.refresh(select).quarantined, home.held()) == (2, [("a", 2, 5)])
    assert home.quarantined() == {
        '{"kind":"b"}': "each: 10 DIV CAST(p.amount AS INT) fails with p.amount = 0",
        '{"kind":"c"}': "n: CAST(p.amount AS INT) fails with p.amount = x; "
        "each: 10 DIV CAST(p.amount AS INT) fails with p.amount = x",
    }
    home.remove("id < 4")
    home.put((1, "a", "x", 1))
    done = home.refresh(select)
    assert (done.deleted, done.quarantined, home.held()) == (1, 1, [])


def test_where_rows_can_not_be_told_the_table_stays_as_it_was(home: Home) -> None:
    select = "SELECT kind, max(CAST(amount AS INT)) AS n FROM (SELECT * FROM silver.parts) GROUP BY kind"
    full = HEADER.replace("incremental", "full")
    home.put((1, "a", "2", 1))
    home.refresh(select, full)
    home.put((2, "b", "x", 1))
    for _ in range(2):
        done = home.refresh(select, full)
        assert (done.kind, done.quarantined, home.held()) == ("failed", 1, [("a", 2)])
        [(keys, reason)] = home.quarantined().items()
        assert keys is None
        assert reason.partition(" The value 'x'")[0].endswith("x.sql:3: [CAST_INVALID_INPUT]")
    home.remove("id = 2")
    assert (home.refresh(select, full).quarantined, home.quarantined()) == (0, {})


def test_keys_may_fail_of_rows_that_the_select_leaves_out(home: Home) -> None:
    select = """SELECT n AS kind, count(*) AS pieces
        FROM (SELECT CAST(amount AS INT) AS n FROM silver.parts WHERE amount RLIKE '^[0-9]+$')
        GROUP BY n"""
    home.put((1, "a", "2", 1))
    assert (home.refresh(select).quarantined, home.held()) == (0, [(2, 1)])
    home.put((2, "a", "x", 1), (3, "a", "2", 1))
    done = home.refresh(select)
    assert (done.kind, done.reason, done.quarantined) == ("full", "keys of changed rows fail", 0)
    assert home.held() == [(2, 2)]


ROWS = "SELECT id, kind, pieces FROM silver.parts WHERE pieces < :most"
CHECKED = """-- keys: id
-- refresh: incremental
-- parameter most: 100
-- check is_of_a_kind (quarantine): kind > ''
-- check is_shared (quarantine): 10 DIV pieces > 0
"""


def test_rows_that_fail_checks_wait_in_quarantine(home: Home) -> None:
    home.put((1, "a", None, 1), (2, None, None, 1), (3, None, None, 0))
    first = home.refresh(ROWS, CHECKED)
    assert (first.kind, first.inserted, first.quarantined) == ("full", 1, 2)
    assert home.quarantined() == {'{"id":2}': "fails is_of_a_kind", '{"id":3}': "fails is_of_a_kind, is_shared"}
    home.remove("id > 1")
    home.put((2, "b", None, 1))
    mended = home.refresh(ROWS, CHECKED)
    assert (mended.reason, mended.inserted, mended.quarantined) == ("rows are in quarantine", 1, 0)
    assert home.quarantined() == {}
    home.remove("id = 1")
    home.put((1, None, None, 1))
    again = home.refresh(ROWS, CHECKED)
    assert (again.kind, again.deleted, again.quarantined) == ("incremental", 1, 1)
    assert (home.held(), home.quarantined()) == ([(2, "b", 1)], {'{"id":1}': "fails is_of_a_kind"})


def test_a_check_that_quarantines_is_part_of_the_declaration(home: Home) -> None:
    home.put((1, "a", None, 1), (2, None, None, 1))
    home.refresh(ROWS, CHECKED.replace("(quarantine)", ""))
    assert len(home.held()) == 2
    done = home.refresh(ROWS, CHECKED)
    assert (done.reason, done.deleted, done.quarantined) == ("the declaration has changed", 1, 1)


def test_a_check_that_fails_leaves_the_table_as_it_was(home: Home) -> None:
    stopping = CHECKED.replace("quarantine", "fail")
    home.put((1, "a", None, 1))
    home.refresh(ROWS, stopping)
    home.put((2, "b", None, 1), (3, None, None, 0))
    for _ in range(2):
        with pytest.raises(
            PermanentError, match=r'^gold.x: .*: 1 with is_of_a_kind, is_shared, such as {"id":3}: noth'
        ):
            home.refresh(ROWS, stopping)
    assert home.held() == [(1, "a", 1)]
    home.remove("id = 3")
    done = home.refresh(ROWS, stopping)
    assert (done.kind, done.inserted, home.held()) == ("incremental", 1, [(1, "a", 1), (2, "b", 1)])


def test_a_parameter_with_another_value_is_another_declaration(home: Home) -> None:
    home.put((1, "a", None, 1), (2, "b", None, 5))
    home.refresh(ROWS, CHECKED)
    [fewer] = with_parameters([home.table(ROWS, CHECKED)], {"x": {"most": "5"}})
    done = refresh(home.lake, fewer)
    assert (done.reason, done.deleted, home.held()) == ("the declaration has changed", 1, [(1, "a", 1)])


@function("text STRING", returns="STRING")
def shout(text: pa.StringArray) -> pa.Array:
    if pc.any(pc.equal(text, "bad")).as_py():
        raise ValueError("not said aloud")
    return pc.utf8_upper(text)


@function("pieces BIGINT", returns="BIGINT", aggregate=True)
def middle(pieces: pa.Int64Array) -> Any:
    [least, *_, most] = pieces.to_pylist()
    if most > 100:
        raise ValueError("too many")
    return least + most


@pytest.fixture
def functions(spark: SparkSession) -> Iterator[None]:
    declare([shout, middle])
    yield
    declare([])


@pytest.mark.usefixtures("functions")
def test_functions_fail_for_their_row_or_group(home: Home) -> None:
    """An aggregate stands beside others, gets rows in order, and its groups are refreshed by their keys."""
    sql = (
        "SELECT shout(kind) AS kind, middle(pieces) AS middle, sum(pieces) AS n FROM silver.parts GROUP BY shout(kind)"
    )
    home.put((1, "a", "", 9), (2, "a", "", 1), (3, "a", "", 3), (4, "bad", "", 1), (5, "c", "", 1), (6, "c", "", 101))
    done = home.refresh(sql)
    assert (done.kind, done.reason, done.inserted, done.quarantined) == ("full", "rows fail", 1, 2)
    assert (home.held(), home.quarantined()) == (
        [("A", 10, 13)],
        {
            '{"kind":null}': "function shout: ValueError: not said aloud",
            '{"kind":"C"}': "function middle: ValueError: too many",
        },
    )
    home.remove("kind != 'a'")
    assert home.refresh(sql).reason == "rows are in quarantine"
    home.put((7, "a", "", 11), (8, "d", "", 1), (9, "d", "", 2))
    done = home.refresh(sql)
    assert (done.kind, done.reason, home.held()) == ("incremental", "2 groups touched", [("A", 12, 24), ("D", 3, 3)])
    declare([shout, replace(middle, arguments=StructType().add("pieces", IntegerType()))])
    assert home.refresh(sql).reason == "the declaration has changed"
