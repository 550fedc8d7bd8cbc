"""What a command loads before it does anything."""

import subprocess
import sys
from importlib.metadata import version

import pytest
import typer.main

from pulsar_lakehouse.cli.commands import COMMANDS, app
from tests.cli.outcome import Command, Outcome

HEAVY = {"duckdb", "great_expectations", "pandas", "psycopg", "pulsar", "pyarrow", "pydantic", "pyspark", "sqlglot"}
"""Packages that take a tenth of a second or more to load."""


def loaded_by(*arguments: str) -> set[str]:
    """The packages that the command has loaded when it ends."""
    command = [sys.executable, "-X", "importtime", "-m", "pulsar_lakehouse.cli", *arguments]
    lines = subprocess.run(command, capture_output=True, text=True).stderr.splitlines()
    names = [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]
    return {name.partition(".")[0] for name in names if "." in name}  # an import that fails is only of the package


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], set()),
        (["--version"], set()),
        (["quarantine"], {"duckdb", "pulsar", "pyarrow", "pydantic", "pyspark", "sqlglot"}),
        (["sql", "SELECT 1"], {"duckdb", "pyarrow", "pydantic"}),
        (["merge", "--help"], {"duckdb", "pulsar", "pyarrow", "pydantic", "pyspark", "sqlglot"}),
        (["status", "--help"], {"duckdb", "pulsar", "pyarrow", "pydantic", "pyspark", "sqlglot"}),
    ],
)
def test_a_command_loads_what_it_needs(arguments: list[str], heavy: set[str]) -> None:
    assert loaded_by(*arguments) & HEAVY == heavy


def test_each_command_can_be_loaded_and_begins_its_help_as_the_list_does() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {name: commands[name].help for name in COMMANDS} == {name: late.summary() for name, late in COMMANDS.items()}


def test_the_version(lakehouse: Command) -> None:
    assert lakehouse("--version") == Outcome(0, f"lakehouse {version('pulsar-lakehouse')}\n", "")
