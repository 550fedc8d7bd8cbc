"""Write the pages of docs/reference from the code: commands, settings, declarations and tables.

.venv/bin/python docs/generate.py
"""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import Any

import sqlglot
import typer.main
from pydantic import BaseModel
from sqlglot import exp
from typer.core import TyperArgument, TyperGroup, TyperOption

from pulsar_lakehouse.bronze.erasures import ERASURES
from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.bronze.losses import LOSSES
from pulsar_lakehouse.bronze.schemas import SCHEMAS
from pulsar_lakehouse.cli.commands import app
from pulsar_lakehouse.contracts.checks import Check, fail, quarantine, warn
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.functions import function
from pulsar_lakehouse.contracts.services import Service, service
from pulsar_lakehouse.contracts.sources import DeltaTable, Files, Postgres
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.expectations.results import RESULTS
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS, Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS, SqlTable
from pulsar_lakehouse.gold.sql.refresh import REFRESHES
from pulsar_lakehouse.jobs.metrics import FIGURES
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.settings import SECRETS, SHIPPED, Settings, load_settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.session import start_spark, stop_spark
from pulsar_lakehouse.tables.declared import Table

SHOP = load(SHIPPED).pipeline
FOLDER = Path(__file__).with_name("reference")
FOLDERS = {"home": "`.lakehouse`", "declarations": "`declarations`", "cache": "`~/.cache/pulsar-lakehouse`"}
"""Defaults that depend on the machine."""


def pages() -> dict[str, str]:
    """The text of each page that needs no Spark, by its file's name."""
    return {
        "commands.md": "\n".join(_commands()),
        "settings.md": "\n".join(_settings()),
        "declarations.md": "\n".join(_declarations()),
        "metrics.md": "\n".join(_metrics()),
    }


def pages_of_types() -> dict[str, str]:
    """The same for the page that needs Spark, which knows the types of columns."""
    return {"tables.md": "\n".join(_tables())}


def _commands() -> Iterator[str]:
    yield "# Commands\n\nThe same texts as `lakehouse COMMAND --help`.\n"
    yield "Exit codes: 0 done; 1 failed; 2 wrong usage; 75 another process is writing a table, or what `wait` waits for"
    yield "has not come; 78 failed, and would fail again, such as for a wrong declaration; 130 interrupted.\n"
    yield from _command(typer.main.get_command(app), "lakehouse")


def _command(command: Any, path: str) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            if not child.hidden:
                yield from _command(child, f"{path} {name}")
        return
    yield f"## {path}\n\n{inspect.cleandoc(command.help or '')}\n"
    shown = [parameter for parameter in command.params if not parameter.hidden]
    if shown:
        yield from _grid(("parameter", "default", ""), map(_parameter, shown))


def _parameter(parameter: TyperArgument | TyperOption) -> tuple[str, ...]:
    if isinstance(parameter, TyperArgument):
        names = f"`{parameter.metavar or parameter.name or ''}`".upper()
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    given = "" if parameter.default in (None, "", False) else f"`{parameter.default}`"
    return names, "required" if parameter.required else given, parameter.help or ""


def _settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "From the environment, or from `lakehouse.toml` in the working directory; the environment wins. In the file,"
    yield "`LAKEHOUSE_PULSAR__NAMESPACE` is `namespace` under `[pulsar]`. An empty variable counts as unset. An unknown"
    yield "name or a bad value stops the start with one line. Secrets come from the environment only.\n"
    yield from _grid(("variable", "default", ""), _variables(Settings, ()))


def _variables(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    docs = documented(model)
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _variables(kind, (*path, name))
            continue
        where = (*path, name)
        doc = docs.get(name, "") + (" Only from the environment." if where in SECRETS else "")
        yield f"`LAKEHOUSE_{'__'.join(where).upper()}`", FOLDERS.get(name) or _default(field.default), doc


def _default(value: object) -> str:
    if isinstance(value, bool):
        value = str(value).lower()
    return "" if value in (None, "", {}) else f"`{value}`"


def _metrics() -> Iterator[str]:
    yield "# Metrics\n"
    yield "What `lakehouse metrics` says. A name that ends in `_total` is a counter; all others are gauges. Names say"
    yield "the units. [Metrics](../metrics.md) says how to collect them.\n"
    rows = [(f"`{each.full_name}`", ", ".join(each.labels), each.says) for each in FIGURES]
    yield from _grid(("metric", "labels", ""), rows)


def _declarations() -> Iterator[str]:
    yield "# Declarations\n"
    yield "The folder `declarations/` says what a pipeline is made of: topics, entities and enrichments in Python, and"
    yield "a SQL file for each table that is made from other tables.\n"
    for declared in (Topic, Entity, Postgres, Files, DeltaTable, Service, Enrichment, Lookup, Match):
        imported = service.__name__ if declared is Service else declared.__name__
        yield f"## {declared.__name__}\n\n`from pulsar_lakehouse import {imported}`\n"
        yield f"{inspect.getdoc(declared)}\n"
        docs = documented(declared)
        rows = (
            (
                f"`{each.name}`",
                _kind(getattr(each.type, "accepts", each.type)),
                _given(each),
                *_with_example(docs.get(each.name, "")),
            )
            for each in fields(declared)
        )
        yield from _grid(("parameter", "type", "default", "", "example"), rows)
    yield f"## Check\n\n`from pulsar_lakehouse import fail, quarantine, warn`\n\n{inspect.getdoc(Check)}\n"
    modes = ((f"`{each.__name__}(sql)`", inspect.getdoc(each) or "") for each in (warn, quarantine, fail))
    yield from _grid(("mode", "what happens with a row that fails"), modes)
    yield f"## function\n\n`from pulsar_lakehouse import function`\n\n{inspect.getdoc(function)}\n"
    yield "See [functions of your own](../functions.md).\n"
    yield f"## SQL files\n\n{inspect.getdoc(SqlTable)}\n\nSee [gold tables in SQL](../sql-tables.md).\n"
    header = (_with_example(doc) for name, doc in documented(SqlTable).items() if name in examples(SqlTable))
    yield from _grid(("", "example"), header)


def examples(declared: type) -> Mapping[str, str]:
    """An example for each parameter that has one, as code: `key="id"`."""
    found = {name: _with_example(doc)[1].strip("`") for name, doc in documented(declared).items()}
    return {name: example for name, example in found.items() if example}


def _with_example(doc: str) -> tuple[str, str]:
    """The docstring of a parameter without the example at its end, and that."""
    text, _, example = doc.partition("Example: ")
    return text, example


def _kind(kind: object) -> str:
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    return f"`{re.sub(r'([a-z_]+[.])+', '', text)}`"


def _given(field: Any) -> str:
    if field.default_factory is not MISSING:
        return "empty"
    if isinstance(field.default, Enum):
        return f"`{field.default.value}`"
    return "required" if field.default is MISSING else f"`{field.default!r}`"


def _tables() -> Iterator[str]:
    yield "# Tables\n"
    yield "All tables of this pipeline. A table exists once a step that writes it has run.\n"
    for table, doc in _declared_tables():
        yield from _table(table.name, doc, _columns(table.ddl), table.partition_by)
    for declared in SHOP.sql_tables:
        doc = f"Keys: {_code(declared.keys)}. Made from {_code(declared.sources)}:"
        yield f"## {declared.name}\n\n{doc}\n\n```sql\n{declared.sql.strip()}\n```\n"


def _table(name: str, doc: str, columns: Iterable[tuple[str, ...]], partition_by: Sequence[str] = ()) -> Iterator[str]:
    partitioned = f" Partitioned by {_code(partition_by)}." if partition_by else ""
    yield f"## {name}\n\n{doc}{partitioned}\n"
    yield from _grid(("column", "type"), columns)


def _declared_tables() -> Iterator[tuple[Table, str]]:
    for topic in SHOP.topics:
        yield bronze_table(topic), f"The messages of the topic `{topic.name}`, as they came, a row each."
    yield SCHEMAS, "The schemas that are registered for topics."
    yield LOSSES, "Messages that the broker deleted before they landed, and that somebody accepted as lost."
    yield ERASURES, "Which messages were erased, and what each table lost."
    for entity in SHOP.entities:
        yield entity.table, f"The latest state of `{entity.name}`, a row a key."
        if entity.keeps_history:
            yield (
                entity.history,
                f"All versions of `{entity.name}`, a row a message, with the time for which each is valid.",
            )
    for enrichment in SHOP.enrichments:
        facts = enrichment.topic.name
        states = {each.name: each.entity.table.schema for each in enrichment.joins}
        yield enrichment.gold(states), f"`{facts}` joined with their state, a row each."
        yield enrichment.waiting, f"`{facts}` that wait for state, and for which."
        yield enrichment.duplicates, f"`{facts}` that came again, with the position of the first."
        yield enrichment.discarded, f"`{facts}` that waited until somebody discarded them."
    yield MALFORMED, "Messages of any topic that break its contract or fail a check, with the reason."
    yield ACTIONS, "What people asked to be done with messages in quarantine, and when intervals were over."
    yield BACKFILLS, "Requests to recompute facts, and what came of them."
    yield SQL_ROWS, "Rows of a declared table on which its SQL fails, or that fail a check, with the reason."
    yield REFRESHES, "What each refresh of a declared table has read."
    yield RESULTS, "What came of each quality rule in each validation."


def _columns(ddl: str) -> Iterator[tuple[str, str]]:
    table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
    for column in table.find(exp.Schema).expressions:  # type: ignore[union-attr]
        yield f"`{column.name}`", f"`{column.kind.sql('spark')}`"


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _grid(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    for line in lines:
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in line)
        yield f"| {' | '.join(cells)} |"
    yield ""


def documented(declared: type) -> Mapping[str, str]:
    """The docstrings below the attributes of a class, and of those that it extends."""
    found: dict[str, str] = {}
    for each in reversed(declared.__mro__[:-1]):
        found |= _documented_itself(each)
    return found


def _documented_itself(declared: type) -> Mapping[str, str]:
    [body] = ast.parse(dedent(inspect.getsource(declared))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for above, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(above, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            assert isinstance(above.target, ast.Name)
            found[above.target.id] = inspect.cleandoc(str(below.value.value))
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    start_spark(load_settings())
    for name, text in (pages() | pages_of_types()).items():
        FOLDER.joinpath(name).write_text(text)
    stop_spark()
