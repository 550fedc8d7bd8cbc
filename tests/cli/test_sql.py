import csv
import json
import sys
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cli.outcome import Command
from tests.personal import declare_personal


def test_sql_as_csv(lakehouse: Command) -> None:
    statement = """SELECT 'a "long", value' AS text, {'id': 7, 'tags': ['x', NULL]} AS struct, NULL AS nothing,
        '{"id": 1}'::BLOB AS payload, {'at': TIMESTAMP '2026-01-02 03:04:05.678', 'raw': 'x'::BLOB} AS nested,
        true AS flag, 1.5 AS flag, [1, 2]::INT[2] AS pair"""
    assert list(csv.reader(lakehouse("sql", "--csv", statement).out.splitlines())) == [
        ["text", "struct", "nothing", "payload", "nested", "flag", "flag_1", "pair"],
        [
            'a "long", value',
            '{"id": 7, "tags": ["x", null]}',
            "",
            '{"id": 1}',
            '{"at": "2026-01-02 03:04:05.678000", "raw": "x"}',
            "true",
            "1.5",
            "[1, 2]",
        ],
    ]


HOSTILE = "SELECT e'red\\x1b[31m\\nand [bold]' AS \"na\tme\""


def test_control_characters_are_shown(lakehouse: Command) -> None:
    out = lakehouse("sql", HOSTILE).out
    assert "red\\x1b[31m\\nand [bold]" in out
    assert "na\\tme" in out


@pytest.mark.parametrize(("terminal", "text"), [(False, "red\x1b[31m\nand [bold]"), (True, r"red\x1b[31m\nand [bold]")])
def test_csv_is_exact_but_to_a_terminal(
    lakehouse: Command, monkeypatch: pytest.MonkeyPatch, terminal: bool, text: str
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    [_, [value]] = csv.reader(StringIO(lakehouse("sql", "--csv", HOSTILE).out))
    assert value == text


@pytest.mark.parametrize("statement", ["SELECT 6 * 7 AS answer", "-- the answer\nSELECT 6 * 7"])
def test_sql(lakehouse: Command, statement: str) -> None:
    assert "42" in lakehouse("sql", statement).out


def test_a_struct_is_shown_as_json(lakehouse: Command) -> None:
    done = lakehouse("sql", "SELECT {'at': TIMESTAMP '2026-01-02', 'of': [1, NULL]} AS row")
    assert '{"at": "2026-01-02 00:00:00", "of": [1, null]}' in done.out


@pytest.mark.parametrize(
    ("statement", "beginning"),
    [
        ("SELEKT 1", "Parser Error: syntax error"),
        ("SELECT * FROM gold.nothing", "Catalog Error: Table with name nothing does not exist"),
        ("SELECT 'a'::INT", "Conversion Error: Could not convert string 'a'"),
    ],
)
def test_a_bad_statement(lakehouse: Command, statement: str, beginning: str) -> None:
    done = lakehouse("sql", statement)
    assert done.code == 1
    assert done.err.startswith(f"lakehouse: {beginning}")
    assert done.err.count("\n") == 1


def test_personal_data_is_shown_and_noted_if_somebody_wants_it(lakehouse: Command, tmp_path: Path) -> None:
    declared = {"LAKEHOUSE_DECLARATIONS": str(declare_personal(tmp_path))}
    users = tmp_path / "home" / "warehouse" / "silver" / "users"
    write_deltalake(users, pa.table({"id": [1], "first_name": ["Ada"], "last_name": ["Lovelace"]}))
    statement = "SELECT first_name, last_name FROM silver.users"
    assert lakehouse("sql", "--csv", statement, **declared).out == "first_name,last_name\nAda,***\n"
    assert json.loads(lakehouse("audit", "--json", **declared).out) == {"entries": []}
    unmasked = lakehouse("sql", "--csv", statement, LAKEHOUSE_UNMASKED="true", **declared)
    assert unmasked.out == "first_name,last_name\nAda,Lovelace\n"
    lakehouse("quarantine", "release", "--all", **declared)
    noted = json.loads(lakehouse("audit", "--json", **declared).out)["entries"]
    assert [(each["did"], each["unmasked"]) for each in noted] == [
        (f"sql --csv {statement}", True),
        ("quarantine release --all", False),
    ]
    assert lakehouse("audit", "--unmasked", **declared).out.count("\n") == 1
