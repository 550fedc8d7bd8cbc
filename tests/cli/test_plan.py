import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pulsar_lakehouse.cli.planned import Compared, show_changes
from pulsar_lakehouse.jobs.planning import Change
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.settings import SHIPPED, load_settings
from tests.cli.outcome import Command, Outcome
from tests.pipeline.projects import VISITORS, visits_project


def test_the_plan_is_what_is_made_from_what(lakehouse: Command, tmp_path: Path) -> None:
    done = lakehouse("plan", "--quick", "--picture", "tables.svg")
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


def plan_of(**found: Sequence[Change]) -> Compared:
    """The plan of a lake without tables for these changes."""
    project = load(SHIPPED)
    return Compared(load_settings(), project, {name.replace("_", ".", 1): changes for name, changes in found.items()})


def test_a_plan_ends_with_the_command_that_it_leads_to(lakehouse: Command, capsys: pytest.CaptureFixture[str]) -> None:
    of_users = Change(table="silver.users", what="key", then="refused", kind="breaking", rebuild="silver.users")
    show_changes(plan_of(silver_users=[of_users, of_users], silver_items=[]))
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Unchanged: silver.items",
        "`lakehouse rebuild silver.users --approve` makes these again, and what depends on them: 0.0 MB of bronze are "
        "read",
    ]


def test_a_plan_names_what_is_behind_a_change(lakehouse: Command, capsys: pytest.CaptureFixture[str]) -> None:
    behind = {"gold.enriched_orders": ["user.name"], "topic enriched_orders": []}
    of_users = Change(table="silver.users", what="name", then="kept", kind="partial", downstream=behind)
    show_changes(plan_of(silver_users=[of_users]))
    shown = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert "gold.enriched_orders user.name silver.users" in shown
    assert shown[-2:] == ["Unchanged: none", "No table needs a rebuild"]


def test_a_plan_of_a_lakehouse_without_tables_is_one_line(
    lakehouse: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    new = Change(table="silver.users", what="new", then="the next run makes it", kind="additive")
    show_changes(plan_of(silver_users=[new]))
    assert capsys.readouterr().out.startswith("No table exists yet: `lakehouse run` makes them")


def test_the_quick_plan_loads_only_what_declarations_need(tmp_path: Path) -> None:
    """Each of these would take it a tenth of a second, or more."""
    script = (
        "import sys; sys.argv = ['lakehouse', 'plan', '--quick']\n"
        "from pulsar_lakehouse.cli import commands\n"
        "try: commands.app()\n"
        "except SystemExit: pass\n"
        "print(*sorted({'pulsar', 'duckdb', 'deltalake', 'pyarrow', 'numpy', 'requests', 'psutil'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
    assert "gold.enriched_orders" in done.stdout


def test_quick_looks_at_no_table_that_could_be_approved(lakehouse: Command) -> None:
    line = "lakehouse: --approve can't be combined with --quick, which looks at no table\n"
    assert lakehouse("plan", "--quick", "--approve") == Outcome(78, "", line)
