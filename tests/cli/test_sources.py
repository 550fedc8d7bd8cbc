"""A project whose only state is in files: no broker is needed."""

import json
from pathlib import Path

import psycopg

from tests.cli.outcome import Command
from tests.contracts.test_sources import DECLARED
from tests.pipeline.projects import project

REGIONS = DECLARED.format(source='Files("regions", "id BIGINT NOT NULL, name STRING", path="regions/*.csv")')


def regions_project(folder: Path, text: str) -> dict[str, str]:
    """The environment of its commands."""
    if not (folder / "regions").exists():
        (folder / "regions").mkdir()
        project(folder, regions=REGIONS)
    (folder / "regions" / "all.csv").write_text(text)
    return {"LAKEHOUSE_DECLARATIONS": str(folder / "declarations")}


def test_a_run_lands_merges_and_reconciles_a_source(lakehouse: Command, tmp_path: Path) -> None:
    given = regions_project(tmp_path, "id,name\n1,North\n2,South\n")
    done = lakehouse("run", **given)
    assert (done.code, "regions: the last snapshot of its source has 2 rows" in done.out) == (0, True)
    [source] = json.loads(lakehouse("status", "--json", **given).out)["sources"]
    assert source | {"read_at": ""} == {
        "source": "regions",
        "place": "files regions/*.csv",
        "rows": 2,
        "changes": 2,
        "read_at": "",
        "problem": "",
    }


def test_what_is_wrong_with_a_source_is_told_and_lands_nothing(lakehouse: Command, tmp_path: Path) -> None:
    given = regions_project(tmp_path, "id,title\n1,North\n")
    why = "files regions/*.csv has no column name: it has id, title"
    planned, landed = lakehouse("plan", **given), lakehouse("land", "regions", **given)
    told = f"declarations/regions.py:4: REGIONS: {why}: nothing of it lands until that is right"
    assert (planned.code, told in planned.out.splitlines()) == (0, True)
    assert (landed.code, f"land regions: {why}" in landed.err.splitlines()) == (0, True)
    status = json.loads(lakehouse("status", "--json", **given).out)
    assert (status["problems"], status["tables"]) == ([f"the last run failed: land regions: {why}"], [])
    regions_project(tmp_path, "id,name\n1,North\n")
    lakehouse("land", "regions", **given)
    assert json.loads(lakehouse("status", "--json", **given).out)["problems"] == []


def test_silver_is_compared_with_the_postgres_that_is_its_source(
    lakehouse: Command, postgres: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE compared AS SELECT 1::bigint AS id, 'North' AS name")
    source = 'Postgres("regions", "id BIGINT NOT NULL, name STRING", table="public.compared")'
    given = {"LAKEHOUSE_DECLARATIONS": str(project(tmp_path, regions=DECLARED.format(source=source)))}
    given["LAKEHOUSE_POSTGRES__URL"] = postgres
    lakehouse("run", **given)
    equal = "silver.regions and public.compared: 1 rows are equal, 0 differ, 0 only here, 0 only there"
    assert equal in lakehouse("compare", **given).out


def test_deletes_are_accepted_by_a_command(lakehouse: Command, tmp_path: Path) -> None:
    lakehouse("land", **regions_project(tmp_path, "id,name\n1,North\n2,South\n3,West\n"))
    given = regions_project(tmp_path, "id,name\n1,North\n")
    refused, taken = (lakehouse("land", "regions", *more, **given) for more in ([], ["--accept-loss"]))
    assert "lacks 2 of 3 rows" in refused.err
    assert "land regions" in taken.out
    assert " 2 rows in " in taken.out
