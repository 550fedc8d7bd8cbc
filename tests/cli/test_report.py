from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.lineage.kept import LastRun
from pulsar_lakehouse.jobs.pipeline_status import FailedChecks, Malformed, Status, Waiting
from pulsar_lakehouse.jobs.planning import Change
from pulsar_lakehouse.settings import load_settings
from tests.jobs.test_pipeline_status import table


def test_a_note_has_a_line_for_each_thing_said(tmp_path: Path) -> None:
    settings = load_settings(run={"note_file": tmp_path / "note"})
    report.note(["users: 1 landed\nspoofed\x1b[31m", "orders: 2 landed"], settings)
    assert (tmp_path / "note").read_text() == "users: 1 landed\\nspoofed\\x1b[31m\norders: 2 landed\n"


def test_what_a_note_quotes_is_no_link() -> None:
    assert report.quoted("such as `[x](http://e.org)`") == "`such as '[x](http://e.org)'`"
    assert report.quoted("x" * 1000) == f"`{'x' * report.QUOTED}`"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("COMPLETE", "2 h ago, 3 rows"),
        ("FAIL", "2 h ago, failed"),
        ("ABORT", "2 h ago, stopped"),
        ("START", "2 h ago, has not ended"),
    ],
)
def test_a_last_run_is_told_in_few_words(state: str, said: str) -> None:
    at = datetime.now(UTC) - timedelta(hours=2)
    assert (
        report.when_and_what("silver.users", LastRun(state=state, at=at, read=9, written={"silver.users": 3})) == said
    )


def test_a_plan_ends_with_the_command_that_it_leads_to(capsys: pytest.CaptureFixture[str]) -> None:
    of_users = Change(table="silver.users", what="key", then="refused", rebuild="silver.users")
    report.changes({"silver.users": [of_users, of_users], "silver.items": []})
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Unchanged: silver.items",
        "`lakehouse rebuild silver.users --approve` makes these again, and what depends on them",
    ]


def test_a_plan_of_a_lakehouse_without_tables_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report.changes({"silver.users": [Change(table="silver.users", what="new", then="the next run makes it")]})
    assert capsys.readouterr().out.startswith("No table exists yet: `lakehouse run` makes them")


def test_the_status_has_files_expired_facts_and_the_rules_that_did_not_pass(capsys: pytest.CaptureFixture[str]) -> None:
    status = Status(
        tables=[replace(table("gold.orders"), files=7)],
        waiting=[Waiting(topic="orders", entity="users", reason="missing", rows=9, expired=4, oldest_seconds=60)],
        malformed=[Malformed(topic="items", rows=5, oldest_seconds=7_200), Malformed(topic="users")],
        checks=[
            FailedChecks(table="gold.orders", severity="critical", rules=[]),
            FailedChecks(table="gold.orders", severity="warning", rules=["grew_as_usual", "has_not_shrunk"]),
        ],
    )
    report.show(report.status(status, ()))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line[0] in "✗!✓│"] == [
        "✗ orders: 4 wait for users and are no longer retried: see `lakehouse quarantine inspect`",
        "! gold.orders: 2 warning rules did not pass: see `lakehouse validate`",
        "│ gold.orders │ 1 │ 0.0 │ 7 │ 0 s ago │ up to date │ │",
        "│ orders wait: users missing │ 9 │ 4 │ 1 min │",
        "│ items: malformed │ 5 │ │ 2 h │",
        "│ gold.orders │ warning │ grew_as_usual, has_not_shrunk │",
    ]
