"""`lakehouse refresh` of several tables. The tests of a single refresh are in tests/gold."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pulsar_lakehouse.cli import refresh as cli_refresh
from pulsar_lakehouse.errors import LakehouseError, PermanentError
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.refresh import Refreshed
from pulsar_lakehouse.jobs import sql_tables
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.tables.lake import Lake
from tests.shop import SQL_TABLES


def test_a_table_that_fails_keeps_no_other_from_its_refresh(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = SQL_TABLES

    def refreshing(lake: Lake, tables: Sequence[SqlTable], *, full: bool) -> Iterator[Refreshed]:
        for table in tables:
            if table is first:
                raise PermanentError(f"{table.at}: NULL in the keys")
            failing = ("n: CAST(kind[0] AS INT) fails",)
            yield Refreshed(table=table.name, kind="full", reason="rows fail", quarantined=2, failing=failing)

    lake = SimpleNamespace(settings=load_settings())
    monkeypatch.setattr(cli_refresh, "open_lake", lambda *_, **__: nullcontext(lake))
    monkeypatch.setattr(sql_tables, "refreshing", refreshing)
    declared: list[Sequence[str]] = []
    monkeypatch.setattr(sql_tables, "clear_undeclared", lambda lake, names: declared.append(names))
    with pytest.raises(LakehouseError) as error:
        cli_refresh.refresh_command()
    assert (type(error.value), str(error.value)) == (PermanentError, f"{first.at}: NULL in the keys")
    assert declared == [[table.name for table in SQL_TABLES]]
    assert capsys.readouterr().out.splitlines() == [
        line
        for table in others
        for line in (
            f"{table.name}: full (rows fail): 0 inserted, 0 updated, 0 deleted",
            f"{table.name}: 2 in quarantine.sql_rows, such as: n: CAST(kind[0] AS INT) fails",
        )
    ]
