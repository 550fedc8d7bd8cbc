from pathlib import Path

import pytest

from pulsar_lakehouse.cli.plan import show_changes
from pulsar_lakehouse.jobs.planning import Change
from tests.cli.outcome import Command, Outcome
from tests.pipeline.projects import VISITORS, visits_project


def test_the_plan_is_what_is_made_from_what(lakehouse: Command, tmp_path: Path) -> None:
    done = lakehouse("plan", "--quick", "--picture", "tables.svg", COLUMNS="200")
    assert (done.code, "gold.enriched_orders" in done.out) == (0, True)
    assert (tmp_path / "tables.svg").read_text().startswith("<svg ")


def test_all_mistakes_in_declarations_are_told_with_a_line_each(lakehouse: Command, tmp_path: Path) -> None:
    folder = visits_project(tmp_path)
    (folder / "visitors.py").write_text(VISITORS.replace('key="id"', 'key="uid"', 1) + "\nOTHERS = Entity()\n")
    assert lakehouse("plan", LAKEHOUSE_DECLARATIONS=str(folder)) == Outcome(
        78,
        "",
        "lakehouse: declarations/visitors.py:11: VISITORS: visitors: key uid: must be one of id, city\n"
        "lakehouse: declarations/visitors.py:18: OTHERS: Entity needs key, columns\n",
    )


def test_a_plan_ends_with_the_command_that_it_leads_to(capsys: pytest.CaptureFixture[str]) -> None:
    of_users = Change(table="silver.users", what="key", then="refused", rebuild="silver.users")
    show_changes({"silver.users": [of_users, of_users], "silver.items": []})
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Unchanged: silver.items",
        "`lakehouse rebuild silver.users --approve` makes these again, and what depends on them",
    ]


def test_a_plan_of_a_lakehouse_without_tables_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_changes({"silver.users": [Change(table="silver.users", what="new", then="the next run makes it")]})
    assert capsys.readouterr().out.startswith("No table exists yet: `lakehouse run` makes them")
