from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.text import Text

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.status import parts
from pulsar_lakehouse.jobs.pipeline_status import FailedChecks, Malformed, Status, Waiting
from pulsar_lakehouse.records import StepRecord, keep_step
from pulsar_lakehouse.settings import load_settings
from tests.cli.outcome import Command
from tests.jobs.test_pipeline_status import table
from tests.lake import own_home


def test_status_without_broker_and_tables_says_what_makes_them(lakehouse: Command) -> None:
    done = lakehouse("status")
    assert (done.code, done.err) == (0, "")
    topics, tables = done.out.splitlines()
    assert topics.startswith("✗ the broker can't be asked: no broker is running: start it with `lakehouse up`")
    assert tables == "Tables: none yet: `lakehouse run` makes them"


def test_watch_looks_again_until_it_is_interrupted(
    lakehouse: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    intervals: list[float] = []

    def sleep(seconds: float) -> None:
        intervals.append(seconds)
        if len(intervals) == 2:
            raise KeyboardInterrupt
        keep_step(own_home(load_settings(), tmp_path / "home"), StepRecord(step="land orders", failure="it is late"))

    monkeypatch.setattr("pulsar_lakehouse.cli.status.time", SimpleNamespace(sleep=sleep))
    done = lakehouse("status", "--watch", "--interval", "9")
    assert (done.code, intervals) == (130, [9, 9])
    assert "✗ the last run failed: it is late\n" in done.out


def test_the_status_has_files_expired_facts_and_the_rules_that_did_not_pass(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status = Status(
        tables=[replace(table("gold.orders"), files=7)],
        waiting=[Waiting(topic="orders", entity="users", reason="missing", rows=9, expired=4, oldest_seconds=60)],
        malformed=[Malformed(topic="items", rows=5, oldest_seconds=7_200), Malformed(topic="users")],
        checks=[
            FailedChecks(table="gold.orders", severity="critical", rules=[]),
            FailedChecks(table="gold.orders", severity="warning", rules=["grew_as_usual", "has_not_shrunk"]),
        ],
    )
    for part in parts(load_settings(home=tmp_path), status):
        report.OUT.print(part, soft_wrap=isinstance(part, Text))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line[0] in "✗!✓│"] == [
        "✗ orders: 4 wait for users and are no longer retried: see `lakehouse quarantine inspect`",
        "! gold.orders: 2 warning rules did not pass: see `lakehouse validate`",
        "│ gold.orders │ 1 │ 0.0 │ 7 │ 0 s ago │ up to date │ │",
        "│ orders wait: users missing │ 9 │ 4 │ 1 min │",
        "│ items: malformed │ 5 │ │ 2 h │",
        "│ gold.orders │ warning │ grew_as_usual, has_not_shrunk │",
    ]
