"""What a SQL file must say to declare a table, and what the errors say."""

from pathlib import Path

import pytest

from pulsar_lakehouse.contracts.checks import fail, warn
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.sql.declaration import declared_in
from pulsar_lakehouse.gold.sql.statements import parse
from tests.shop import SQL_TABLES

HEADER = """-- Users of an account.
-- keys: account_id, day
-- refresh: incremental
"""
SELECT = "SELECT 1 AS x FROM silver.users"


def declare(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.sql").write_text(text)


def test_a_table_is_declared_by_its_header(tmp_path: Path) -> None:
    more = """-- publish: topic counts, postgres public.counts
-- check few (fail): users < 9
-- check some: users > 0
-- parameter most: 100
"""
    declare(tmp_path, "counts", HEADER + more + SELECT.replace("1 AS x", ":most AS x"))
    [table] = declared_in(tmp_path)
    assert (table.name, table.keys, table.refresh) == ("gold.counts", ("account_id", "day"), "incremental")
    assert (table.sources, table.topic, table.postgres) == (("silver.users",), "counts", "public.counts")
    assert (table.checks, table.parameters) == (
        {"few": fail("users < 9"), "some": warn("users > 0")},
        {"most": "100"},
    )
    assert table.at_entry("check", "some").endswith("counts.sql:6")


def test_the_sources_are_the_tables_that_the_select_reads(tmp_path: Path) -> None:
    sql = """WITH old AS (SELECT * FROM silver.users_history)
SELECT * FROM silver.users JOIN silver.users AS u JOIN old WHERE id IN (SELECT user_id FROM gold.enriched_orders)
"""
    declare(tmp_path, "counts", HEADER + sql)
    [table] = declared_in(tmp_path)
    assert sorted(table.sources) == ["gold.enriched_orders", "silver.users", "silver.users_history"]


def test_a_table_comes_after_those_it_is_made_from(tmp_path: Path) -> None:
    declare(tmp_path, "a", HEADER + SELECT.replace("silver.users", "gold.b"))
    declare(tmp_path, "b", HEADER + SELECT)
    assert [table.name for table in declared_in(tmp_path)] == ["gold.b", "gold.a"]
    declare(tmp_path, "b", HEADER + SELECT.replace("silver.users", "gold.a"))
    with pytest.raises(ConfigurationError, match="is made from itself"):
        declared_in(tmp_path)


@pytest.mark.parametrize(
    ("given", "instead", "error"),
    [
        ("-- keys: account_id, day\n", "", r"x.sql:1: `-- keys: \.\.\.` is missing"),
        ("keys", "key", "x.sql:2: key: unknown; must be one of keys, refresh, publish, check, parameter"),
        ("account_id, day", "account id", "x.sql:2: account id: must be columns"),
        ("incremental", "often", "x.sql:3: refresh: often: must be incremental or full"),
        ("silver.users", "users", "x.sql:4: reads users: must be a table such as silver.users"),
        ("silver.users", "silver.users VERSION AS OF 3", "x.sql:4: silver.users is read with version: only an alias"),
        ("FROM silver.users", "", "x.sql:1: the SELECT reads no table"),
        ("SELECT", "SELECT (", "x.sql:4: not SQL"),
        ("SELECT", "SELECT :days,", "x.sql:4: :days: declare it, as `-- parameter days: VALUE`"),
        ("refresh: incremental", "keys: id", "x.sql:3: keys is given twice"),
        ("-- Users of an account.", "-- check: a > 0", "x.sql:1: check: must be `-- check NAME: SQL`"),
        ("-- Users of an account.", "-- check big: a >", "x.sql:1: check big: a >: not SQL"),
        (
            "-- Users of an account.",
            "-- check big (often): a > 0",
            r"x.sql:1: check big \(often\): must be warn, quara",
        ),
        ("-- Users of an account.", "-- parameter: days = 1", "x.sql:1: parameter: must be `-- parameter NAME: VALUE`"),
        (
            "-- Users of an account.",
            "-- parameter days: few",
            "x.sql:1: parameter days: few: must be a literal, such as",
        ),
        ("-- Users of an account.", "-- parameter days: 1", "x.sql:1: parameter days: the SELECT has no :days"),
        ("-- Users of an account.", "-- publish: kafka x", "x.sql:1: publish: kafka x: must be `topic NAME`"),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, given: str, instead: str, error: str) -> None:
    declare(tmp_path, "x", (HEADER + SELECT).replace(given, instead))
    with pytest.raises(ConfigurationError, match=error):
        declared_in(tmp_path)


def test_windows_are_declared() -> None:
    assert [table.name for table in SQL_TABLES] == [
        "gold.revenue_by_hour",
        "gold.revenue_by_session",
        "gold.revenue_of_the_last_hour",
        "gold.revenue_so_far",
    ]


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        pytest.param("id, upper(city) AS city", {"id": "id", "city": "UPPER(city)"}, id="named"),
        pytest.param("*", {"id": "*", "city": "*"}, id="all of a table"),
        pytest.param("*, upper(city) AS city", {"id": "*", "city": "UPPER(city)"}, id="all, and one by its name"),
        pytest.param("id, explode(cities)", {"id": "id", "city": "EXPLODE(cities)"}, id="one that Spark names"),
    ],
)
def test_each_column_is_made_from_something(tmp_path: Path, select: str, columns: dict[str, str]) -> None:
    (tmp_path / "a.sql").write_text(f"-- keys: id\n-- refresh: full\nSELECT {select} FROM silver.stores")
    [table] = declared_in(tmp_path)

    definition = parse(table).definition(["id", "city"])

    assert {name: sql for name, sql in definition.items() if name.startswith("column ")} == {
        f"column {name}": sql for name, sql in columns.items()
    }
