"""Where the tables are, as a folder or a URI says."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehouse.errors import ConfigurationError
from lakehouse.query import query
from lakehouse.settings import load_settings
from lakehouse.status import table_statuses


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_folder_can_be_given_as_a_uri(tmp_path: Path, scheme: str) -> None:
    lake = load_settings(home=tmp_path / "home", warehouse=f"{scheme}{tmp_path}/tables/")
    assert lake.table_path("gold.notes") == f"{tmp_path}/tables/gold/notes"
    write_deltalake(lake.table_path("gold.notes"), pa.table({"note": ["first"]}))
    assert query(lake, "SELECT note FROM gold.notes").fetchall() == [("first",)]
    assert [status.name for status in table_statuses(lake)] == ["gold.notes"]


def test_what_needs_tables_on_this_machine_says_so() -> None:
    lake = load_settings(warehouse="s3a://bucket/tables")
    assert lake.table_path("gold.notes") == "s3a://bucket/tables/gold/notes"
    with pytest.raises(ConfigurationError, match=r"^warehouse: s3a://bucket/tables: .* must be a folder, or file:///"):
        query(lake, "SELECT 1")


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAKEHOUSE_HOME", "LAKEHOUSE_RUN__RETRIES", "LAKEHOUSE_SERVE__USERS"):
        monkeypatch.setenv(name, "")
    given = load_settings()
    assert (given.home, given.run.retries, given.serve.users) == (Path(".lakehouse").absolute(), 5, {})
