import csv
import sys
from io import StringIO

import pytest

from tests.cli.outcome import Command


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
