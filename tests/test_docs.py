"""The docs say what is: their links, commands, settings, tables and code."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import typer.main
from pyspark.sql import SparkSession
from typer.core import TyperGroup

from docs.generate import FOLDER, examples, pages, pages_of_types
from docs.plots import IMAGES, plots
from pulsar_lakehouse.cli.commands import app
from pulsar_lakehouse.contracts.checks import quarantine, warn
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.contracts.sources import DeltaTable, Files, Postgres, Source
from pulsar_lakehouse.contracts.topics import Encoding, KeyEncoding, Topic
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.sql.declaration import SqlTable, read_declaration
from pulsar_lakehouse.pipeline.checks import mistakes_of
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from tests.shop import SQL_TABLES

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bronze" / "pulsar" / "README.md"]
PAGES = sorted(page for page in PAGES if "_build" not in page.parts)
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


INCOMPLETE = ("MissingParameter", "BadOptionUsage", "NoArgsIsHelpError")
"""What may be wrong with a command that text names without its arguments."""
TO_BE_WRITTEN = {"declarations/stores.py", "declarations/sql/NAME.sql", "bin/pulsar"}
"""Files that pages name, but that are not in this repository."""
each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The code blocks of a page in one of these languages."""
    for language, code in re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL):
        if language in languages:
            yield code


def typed(page: Path) -> Iterator[list[str]]:
    """What the page's code blocks have people type, word by word."""
    for code in blocks(page, "", "bash", "sh"):
        for command in re.findall(
            r"""^ *((?:lakehouse|make) [a-z](?:"[^"]*"|'[^']*'|\\\n|[^"'\n])*)""", code, re.MULTILINE
        ):
            words = shlex.split(command, comments=True)
            yield list(takewhile(lambda word: word not in (">", "|", "&"), words))


def mentioned(page: Path) -> Iterator[list[str]]:
    """The commands that the page's text names, perhaps without their arguments."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for line in re.findall(r"`((?:lakehouse|make) [a-z][^`]*)`", text):
        if not re.search(r"[A-Z]{3}|…|\.\.\.", line):
            yield line.split()


def parse(command: Any, words: list[str], name: str) -> None:
    """Raises click's error if the command has no such subcommand, argument or option."""
    with command.make_context(name, list(words)) as context:
        if isinstance(command, TyperGroup):
            sub, found, left = command.resolve_command(context, [*context._protected_args, *context.args])
            parse(found, left, str(sub))


def problem(root: Any, words: list[str]) -> str | None:
    """The name of Click's error, which Typer does not make public; None if there is none."""
    try:
        parse(root, words, "lakehouse")
    except Exception as error:
        return type(error).__name__
    return None


def test_the_reference_is_that_of_the_code() -> None:
    """If not: `.venv/bin/python docs/generate.py`."""
    assert {page.name: page.read_text() for page in FOLDER.glob("*.md") if page.name != "tables.md"} == pages()


def test_the_reference_of_tables_is_that_of_the_code(spark: SparkSession) -> None:
    """If not: `.venv/bin/python docs/generate.py`."""
    assert {"tables.md": (FOLDER / "tables.md").read_text()} == pages_of_types()


def test_the_plots_are_those_of_the_figures() -> None:
    """If not: `.venv/bin/python docs/plots.py`."""
    assert {name: (IMAGES / name).read_text() for name in plots()} == plots()


STORES = Entity(
    topic=Topic("stores", "id BIGINT NOT NULL, city STRING"), key="id", columns="id, city, version, opened_at"
)


async def geocode(address: str) -> None:
    pass


GIVEN: dict[Any, dict[str, Any]] = {
    Topic: {"name": "stores", "fields": "id BIGINT NOT NULL"},
    Entity: {"topic": STORES.topic, "key": "id", "columns": "id, city, version"},
    Postgres: {"name": "regions", "fields": "id BIGINT NOT NULL"},
    Files: {"name": "regions", "fields": "id BIGINT NOT NULL", "path": "regions/*.csv"},
    DeltaTable: {"name": "regions", "fields": "id BIGINT NOT NULL", "path": "regions"},
    Service: {"function": geocode, "returns": "lat DOUBLE"},
    Lookup: {"entity": STORES, "on": "store_id"},
    Match: {"entity": STORES, "on": "store_id", "by": "id", "time": "opened_at", "within": "1 hour"},
    Enrichment: {
        "topic": Topic("sales", "id BIGINT NOT NULL, storeId BIGINT, soldAt TIMESTAMP_MILLIS, email STRING"),
        "columns": "id, storeId AS store_id, soldAt AS sold_at, email",
        "keys": ("id",),
        "event_time": "sold_at",
        "day": "sale_date",
        "lookups": (),
    },
}
"""What a declaration needs beside the parameter of an example."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in GIVEN for name in examples(kind)])
def test_the_example_of_a_parameter_can_be_declared(kind: Any, name: str) -> None:
    names = {"STORES": STORES, "Match": Match, "quarantine": quarantine, "warn": warn}
    names |= {"Debezium": Debezium, "Topic": Topic, "Lookup": Lookup, "Encoding": Encoding, "KeyEncoding": KeyEncoding}
    names |= {"Postgres": Postgres, "geocode": geocode}
    given = eval(f"dict({examples(kind)[name]})", names)
    needed = {key: value for key, value in GIVEN[kind].items() if (key, name) != ("topic", "source")}
    declared = kind(**needed | given)
    assert list(given) == [name]
    assert not isinstance(declared, Entity | Enrichment) or list(mistakes_of(declared)) == []
    assert not isinstance(declared, Source) or list(declared.mistakes()) == []


@pytest.mark.parametrize("name", examples(SqlTable))
def test_the_example_of_a_header_can_be_declared(tmp_path: Path, name: str) -> None:
    lines = {line.partition(":")[0]: line for line in ("-- keys: city", "-- refresh: full", "-- parameter hours: 2")}
    example = examples(SqlTable)[name]
    header = "\n".join((lines | {example.partition(":")[0]: example}).values())
    file = tmp_path / "revenue_by_city.sql"
    file.write_text(f"{header}\nSELECT city, sum(price) AS revenue FROM gold.sales WHERE hours < :hours GROUP BY city")
    assert getattr(read_declaration(file), name)


@pytest.mark.parametrize("kind", GIVEN)
def test_each_parameter_has_an_example(kind: Any) -> None:
    assert {each.name for each in fields(kind)} - {"schemas", "kinds"} == examples(kind).keys()


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@each_page
def test_files_are_there(page: Path) -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
    named = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text())) - TO_BE_WRITTEN
    assert page.name == "CHANGELOG.md" or {name for name in named if not (ROOT / name).exists()} == set()


@each_page
def test_commands_are_there(page: Path) -> None:
    root = typer.main.get_command(app)
    for program, *words in typed(page):
        if program == "make":
            assert words[0] in TARGETS
        else:
            parse(root, words, "lakehouse")
    for program, *words in mentioned(page):
        if program == "make":
            assert words[0] in TARGETS
        else:
            assert problem(root, words) in (None, *INCOMPLETE)


@each_page
def test_settings_are_there(page: Path) -> None:
    parameters = (f"{table.file.stem}__{name}" for table in SQL_TABLES for name in table.parameters)
    known = {f"LAKEHOUSE_PARAMETERS__{name}".upper() for name in parameters}
    for name, field in Settings.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        known |= {f"LAKEHOUSE_{name}__{each}".upper() for each in inner} or {f"LAKEHOUSE_{name}".upper()}
    assert set(re.findall(r"\bLAKEHOUSE_[A-Z]\w*[A-Z]", page.read_text())) - known == set()


@each_page
def test_code_can_be_read(page: Path) -> None:
    for code in blocks(page, "python"):
        compile(code, name_of(page), "exec")
    for code in blocks(page, "sql"):
        sqlglot.parse(code, dialect="spark")


def test_the_example_of_a_topic_can_be_declared() -> None:
    _, code, *_ = blocks(ROOT / "docs" / "own-topics.md", "python")
    declared: dict[str, Any] = {}
    exec(code, declared)
    assert declared["STORES"].table.name == "silver.stores"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900
