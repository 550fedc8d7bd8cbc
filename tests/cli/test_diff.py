"""`lakehouse diff`: what is compared with what, and what is said of it."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.jobs.snapshots import Snapshot, Version, add
from pulsar_lakehouse.settings import load_settings
from tests.cli.outcome import Command, Outcome

COLUMNS = pa.schema([("id", pa.int64()), ("first_name", pa.string())])
BEFORE, NOW = [{"id": 1, "first_name": "Ada"}, {"id": 2, "first_name": "Eve"}], [{"id": 1, "first_name": "Ida"}]


@pytest.fixture(autouse=True)
def users(lakehouse: Command, tmp_path: Path) -> None:
    """Two versions of `silver.users`, of which the first one is in the snapshot `first`."""
    project = load_settings(home=tmp_path / "home")
    path = project.table_path("silver.users")
    write_deltalake(path, pa.Table.from_pylist(BEFORE, COLUMNS))
    kept = Version(id=str(DeltaTable(path).metadata().id), version=0, rows=2)
    add(project, Snapshot(name="first", created_at=datetime.now(UTC), tables={"silver.users": kept}))
    write_deltalake(path, pa.Table.from_pylist(NOW, COLUMNS), mode="overwrite")


@pytest.mark.parametrize(
    "asked", [["silver.users@0"], ["silver.users@first"], ["first"], ["silver.users@0", "silver.users"]]
)
def test_versions_are_compared_by_the_declared_key(lakehouse: Command, asked: list[str]) -> None:
    done = lakehouse("diff", *asked)
    first, *rows = [" ".join(line.replace("│", " ").split()) for line in done.out.splitlines()]
    assert (done.code, done.err) == (0, "")
    assert first == (
        "silver.users@0 and silver.users: 0 rows are equal, 1 differ, 1 only in silver.users@0, 0 only in silver.users"
    )
    assert [row for row in rows if row[:1].isalpha()] == [
        "first_name 1 1 Ada Ida",
        "only in silver.users@0 1 2 a row no row",
    ]


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (["silver.user"], "silver.user: no such table; did you mean silver.users?"),
        (["silver.users@second"], "second: no such snapshot; there are first"),
        (["second"], "second: no such snapshot; there are first"),
        (["silver.users@0", "users"], "users: must be a table such as gold.orders, or gold.orders@12"),
        (["silver.users@0", "--by", "name"], "silver.users@0: has no column name to compare by: name others with --by"),
    ],
)  # fmt: skip
def test_what_can_not_be_compared_is_one_line(lakehouse: Command, asked: list[str], line: str) -> None:
    assert lakehouse("diff", *asked) == Outcome(78, "", f"lakehouse: {line}\n")
