"""Each package imports only from packages below it. Engines name none of the declared tables."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from domains import DOMAINS
from pipeline.loading import load

ROOT = Path(__file__).parent.parent
SHARED = ["lakehouse.contracts", "lakehouse.delta", "lakehouse.pulsar", "lakehouse.spark", "lakehouse"]
LOCAL = ["lakehouse.jvm", "lakehouse.downloads", "lakehouse.local"]
MAY_IMPORT = {
    "lakehouse": [],
    "lakehouse.jvm": ["lakehouse"],
    "lakehouse.downloads": ["lakehouse.jvm", "lakehouse"],
    "lakehouse.spark": ["lakehouse.jvm", "lakehouse.downloads", "lakehouse"],
    "lakehouse.delta": ["lakehouse"],
    "lakehouse.contracts": ["lakehouse.delta", "lakehouse.spark", "lakehouse"],
    "lakehouse.pulsar": ["lakehouse.contracts", "lakehouse"],
    "lakehouse.local": ["lakehouse.jvm", "lakehouse.downloads", "lakehouse.pulsar", "lakehouse"],
    "lakehouse.sql_server": [*SHARED, *LOCAL],
    "bronze.pulsar": [],
    "bronze": ["bronze.pulsar", *SHARED],
    "silver": SHARED,
    "gold.enrichment": ["silver", *SHARED],
    "gold.sql": ["gold.enrichment", *SHARED],
    "gold.sinks": ["gold.enrichment", "gold.sql", *SHARED, *LOCAL],
    "expectations": ["silver", "gold.enrichment", "gold.sql", *SHARED, *LOCAL],
    "pipeline": ["expectations", "silver", "gold.enrichment", "gold.sql", *SHARED],
    "domains": ["expectations", "silver", "gold.enrichment", *SHARED],
    "jobs": [
        "pipeline",
        "expectations",
        "bronze",
        "silver",
        "gold.enrichment",
        "gold.sql",
        "gold.sinks",
        *SHARED,
        *LOCAL,
    ],
    "dags.local": [*LOCAL, "lakehouse"],
    "cli": [
        *("dags.local", "domains", "jobs", "pipeline", "expectations", "bronze", "silver"),
        *("gold.enrichment", "gold.sql", "lakehouse.sql_server", *SHARED, *LOCAL),
    ],
    "dags.operators": ["cli", "jobs", "pipeline", *SHARED, *LOCAL],
    "dags": ["dags.operators", "cli", "jobs", "pipeline", "lakehouse"],
}
"""The packages from which the modules of each package may import, beside their own."""
ENGINES = ["lakehouse", "bronze", "silver", "gold", "expectations", "pipeline", "jobs", "cli", "dags"]


def room_of(module: str) -> str | None:
    rooms = (room for room in MAY_IMPORT if module == room or module.startswith(f"{room}."))
    return max(rooms, key=len, default=None)


def modules_of(package: str) -> Iterator[tuple[str, ast.Module]]:
    """The name and the syntax tree of each module."""
    for file in sorted((ROOT / package).rglob("*.py")):
        yield ".".join(file.relative_to(ROOT).with_suffix("").parts), ast.parse(file.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    """The full names that a module imports from other packages, anywhere in its code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 1:  # it stays in its package
                continue
            assert node.level == 0, "imports from other packages are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", sorted({room.partition(".")[0] for room in MAY_IMPORT}))
def test_a_room_imports_only_from_those_it_may(package: str) -> None:
    forbidden = {
        f"{module} imports {name}"
        for module, tree in modules_of(package)
        for name in imports(tree)
        if (into := room_of(name)) is not None
        and (room := room_of(module)) is not None
        and into != room
        and into not in MAY_IMPORT[room]
    }
    assert forbidden == set()


def test_each_module_has_a_room() -> None:
    packages = {room.partition(".")[0] for room in MAY_IMPORT}
    modules = ((name, tree) for package in packages for name, tree in modules_of(package))
    without = [name for name, tree in modules if room_of(name) is None and len(tree.body) > 1]
    assert without == []


def test_rooms_are_in_order() -> None:
    """No package imports from itself through others."""

    def below(room: str, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for other in MAY_IMPORT[room]:
            if other in path:
                yield (*path, other)
            else:
                yield from below(other, (*path, other))

    assert [circle for room in MAY_IMPORT for circle in below(room, (room,))] == []


@pytest.mark.parametrize("package", ENGINES)
def test_an_engine_names_no_declared_table(package: str) -> None:
    names: set[str] = set()
    for pipeline in (load(folder / "declarations").pipeline for folder in DOMAINS.values()):
        names |= {table.name for table in pipeline.sql_tables} | {topic.bronze_table for topic in pipeline.topics}
        for entity in pipeline.entities:
            names |= {entity.table.name, entity.history.name}
        for enrichment in pipeline.enrichments:
            names |= {enrichment.gold_table, *enrichment.places}
    named = {
        f"{module}: {node.value}"
        for module, tree in modules_of(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    }
    assert named == set()


def test_functions_are_short() -> None:
    packages = sorted({room.partition(".")[0] for room in MAY_IMPORT} | {"benchmarks"})
    long = {
        f"{module}.{node.name}"
        for package in packages
        for module, tree in modules_of(package)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 40
    }
    assert long == set()


def test_only_the_session_builder_makes_a_session() -> None:
    packages = {room.partition(".")[0] for room in MAY_IMPORT}
    makers = {
        str(file.relative_to(ROOT))
        for package in packages
        for file in (ROOT / package).rglob("*.py")
        if "SparkSession.builder" in file.read_text()
    }
    assert makers == {"lakehouse/spark/session.py"}
