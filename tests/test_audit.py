import json
from pathlib import Path

import pytest

from pulsar_lakehouse.audit import Entry, command_line, entries, folder, note
from pulsar_lakehouse.cli.commands import ACTS
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import load_settings


def test_lines_are_added(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    note(settings, "sql SELECT\n1", who="ada", unmasked=True)
    note(settings, "forget users:***")
    with (folder(settings) / "audit.jsonl").open("a") as torn:
        torn.write('{"at": "2026')
    assert [(each.who == "ada", each.did, each.unmasked) for each in entries(settings)] == [
        (True, "sql SELECT\n1", True),
        (False, "forget users:***", False),
    ]


def test_nothing_is_done_without_a_line(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("no folder")
    with pytest.raises(LakehouseError, match="nothing is done without a line in it"):
        note(load_settings(home=tmp_path), "forget")


@pytest.mark.parametrize(
    ("command", "noted"),
    [
        ("quarantine release --all", True),
        ("quarantine inspect", False),
        ("snapshot restore before", True),
        ("snapshot list", False),
        ("land stores --accept-loss", True),
        ("plan --approve", True),
        ("rebuild silver.users", True),
        ("status", False),
    ],
)
def test_commands_that_act_are_noted(command: str, noted: bool) -> None:
    assert bool(ACTS.match(command)) == noted


def test_the_key_of_who_is_forgotten_is_not_kept() -> None:
    assert command_line(["forget", "users:17", "--approve"]) == "forget users:*** --approve"
    assert command_line(["forget", "--approve", 'a:["x y","EUR"]']) == "forget --approve a:***"


def test_fields_are_those_that_the_endpoint_writes() -> None:
    line = '{"at":"2026-01-01T00:00:00Z","who":"ada","did":"SELECT 1","unmasked":false}'
    assert Entry(**json.loads(line)) == Entry(at="2026-01-01T00:00:00Z", who="ada", did="SELECT 1")
