"""The last run of a step is known by its events, however old it is."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from openlineage.client.serde import Serde

from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.jobs.lineage import kept
from pulsar_lakehouse.jobs.lineage.events import Done, names_of, run_event
from pulsar_lakehouse.jobs.lineage.flows import merged
from pulsar_lakehouse.jobs.lineage.kept import LastRun, keep_event, last_run
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
RUN = "01890a5d-ac96-774b-bcce-b302099a8057"


def told(settings: Settings, state: str, done: Done | None = None) -> str:
    flow = merged(USERS)
    names = names_of(settings, flow)
    return Serde.to_json(run_event(settings, flow, state, run_id=RUN, at=AT, names=names, done=done or Done()))


def test_the_last_run_is_the_last_event(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    assert last_run(project, "merge users") is None
    keep_event(project, "merge users", told(project, "START"))
    assert last_run(project, "merge users") == LastRun(state="START", at=AT, written={})
    keep_event(project, "merge users", told(project, "COMPLETE", Done(read=3, written={"silver.users": 2})))
    keep_event(project, "merge users", '{"torn')
    assert last_run(project, "merge users") == LastRun(state="COMPLETE", at=AT, read=3, written={"silver.users": 2})
    keep_event(project, "merge users", told(project, "FAIL", Done(failure="no disk")))
    assert last_run(project, "merge users") == LastRun(state="FAIL", at=AT, written={}, failure="no disk")


def test_files_do_not_grow_forever(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = own_home(settings, tmp_path)
    monkeypatch.setattr(kept, "MOST_BYTES", 30)
    for number in range(20):
        keep_event(project, "merge users", f'{{"number": {number}}}')
    files = sorted((tmp_path / "lineage").iterdir())
    assert [(file.name, file.read_text().count("\n")) for file in files] == [
        ("merge users.1.jsonl", 3),
        ("merge users.jsonl", 2),
    ]
