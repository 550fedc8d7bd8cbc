"""What a SQL file must say to declare a table, and what the errors say."""

from pathlib import Path

import pytest

from gold.sql.declaration import declared_in
from lakehouse.errors import ConfigurationError
from tests.shop import SQL_TABLES

HEADER = """-- Users of an account.
-- keys: account_id, day
-- refresh: incremental
-- sources: silver.users
"""


def declare(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.sql").write_text(text)


def test_a_table_is_declared_by_its_header(tmp_path: Path) -> None:
    declare(tmp_path, "counts", f"{HEADER}-- publish: topic counts, postgres public.counts\nSELECT 1")
    [table] = declared_in(tmp_path)
    assert (table.name, table.keys, table.refresh) == ("gold.counts", ("account_id", "day"), "incremental")
    assert (table.sources, table.topic, table.postgres) == (("silver.users",), "counts", "public.counts")


def test_a_table_comes_after_those_it_is_made_from(tmp_path: Path) -> None:
    declare(tmp_path, "a", HEADER.replace("silver.users", "gold.b") + "SELECT 1")
    declare(tmp_path, "b", HEADER + "SELECT 1")
    assert [table.name for table in declared_in(tmp_path)] == ["gold.b", "gold.a"]
    declare(tmp_path, "b", HEADER.replace("silver.users", "gold.a") + "SELECT 1")
    with pytest.raises(ConfigurationError, match="is made from itself"):
        declared_in(tmp_path)


@pytest.mark.parametrize(
    ("given", "instead", "error"),
    [
        ("-- keys: account_id, day\n", "", r"x.sql:1: `-- keys: \.\.\.` is missing"),
        ("keys", "key", "x.sql:2: key: unknown; must be one of keys, refresh, sources, publish"),
        ("account_id, day", "account id", "x.sql:2: account id: must be columns"),
        ("incremental", "often", "x.sql:3: refresh: often: must be incremental or full"),
        ("silver.users", "users", "x.sql:4: users: must be tables"),
        ("sources", "keys", "x.sql:4: keys is given twice"),
        ("-- Users of an account.", "-- publish: kafka x", "x.sql:1: publish: kafka x: must be `topic NAME`"),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, given: str, instead: str, error: str) -> None:
    declare(tmp_path, "x", HEADER.replace(given, instead) + "SELECT 1")
    with pytest.raises(ConfigurationError, match=error):
        declared_in(tmp_path)


def test_windows_are_declared() -> None:
    assert [table.name for table in SQL_TABLES] == [
        "gold.revenue_by_hour",
        "gold.revenue_by_session",
        "gold.revenue_of_the_last_hour",
        "gold.revenue_so_far",
    ]
