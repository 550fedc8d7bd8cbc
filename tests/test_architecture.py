"""Each package imports only from packages below it. Engines name none of the declared tables."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pulsar_lakehouse
from pulsar_lakehouse.domains import DOMAINS
from pulsar_lakehouse.pipeline.loading import load

PACKAGE = Path(pulsar_lakehouse.__file__).parent
ROOT = PACKAGE.parent
SHARED = ["", "spark", "tables", "contracts"]
TABLES = ["checkpoints", "leases", "inspection"]
LOCAL = ["jvm", "downloads", "pulsar", "local"]
GOLD = ["gold.enrichment", "gold.sql"]
MAY_IMPORT = {
    "": [],
    "jvm": [""],
    "engine": [""],
    "downloads": ["", "jvm"],
    "spark": ["", "jvm", "engine", "downloads"],
    "tables": ["", "spark"],
    "checkpoints": ["", "spark", "tables"],
    "leases": ["", "engine"],
    "inspection": ["", "tables", "checkpoints"],
    "contracts": ["", "spark", "tables"],
    "bronze.pulsar": [],
    "pulsar": ["", "contracts", "bronze.pulsar"],
    "local": ["", "jvm", "downloads", "pulsar"],
    "sql_server": ["", "spark", "tables", "leases", *LOCAL],
    "bronze": [*SHARED, *TABLES, "pulsar", "bronze.pulsar"],
    "silver": [*SHARED, "checkpoints"],
    "gold.enrichment": [*SHARED, "checkpoints", "silver"],
    "gold.sql": [*SHARED, "inspection", "gold.enrichment"],
    "gold.sinks": [*SHARED, "checkpoints", *GOLD, *LOCAL],
    "expectations": [*SHARED, "inspection", "downloads", "silver", *GOLD],
    "pipeline": [*SHARED, "pulsar", "silver", *GOLD, "expectations"],
    "domains": ["", "pulsar"],
    "jobs": [*SHARED, *TABLES, *LOCAL, "bronze", "silver", *GOLD, "gold.sinks", "expectations", "pipeline"],
    "page": ["", "spark", "tables", "inspection", "local", "gold.enrichment", "pipeline", "jobs"],
    "cli": [
        *(*SHARED, *TABLES, *LOCAL, "bronze", "silver", *GOLD, "expectations", "pipeline"),
        *("domains", "engine", "jobs", "sql_server", "page"),
    ],
    "dags.operators": ["", "spark", "inspection", "pipeline", "jobs", "page", "cli"],
    "dags": ["", "pipeline", "jobs", "dags.operators"],
}
"""The packages from which the modules of each package may import, beside their own. `""` has what all of them share,
and `face` is the `__init__` above them."""
FACE = ["face", "testing", "airflow"]
"""The modules that users import. They are on top of all others, which don't import them."""
ENGINES = sorted({room.partition(".")[0] for room in MAY_IMPORT} - {"", "domains"})


def room_of(module: str) -> str:
    """The package of a module, which is named within `pulsar_lakehouse`."""
    rooms = (room for room in MAY_IMPORT if module == room or module.startswith(f"{room}."))
    return max(rooms, key=len, default="")


def modules() -> Iterator[tuple[str, ast.Module]]:
    """The name within `pulsar_lakehouse` and the syntax tree of each module; what `lakehouse init` copies is none."""
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).with_suffix("")
        if name.parts[0] != "starter":
            yield ".".join(name.parts).removesuffix("__init__").removesuffix(".") or "face", ast.parse(file.read_text())


MODULES = dict(modules())


def imports(module: str) -> Iterator[str]:
    """The names within `pulsar_lakehouse` that a module imports, anywhere in its code."""
    for node in ast.walk(MODULES[module]):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            relative = room_of(module) if node.level else ""
            assert relative in ("", "domains", "bronze.pulsar"), f"{module}: imports are absolute"
            parent = f"pulsar_lakehouse.{relative}." if relative == "bronze.pulsar" else ""
            names = [f"{parent}{node.module}.{alias.name}" for alias in node.names]
        yield from (name.removeprefix("pulsar_lakehouse.") for name in names if name.startswith("pulsar_lakehouse."))


def module_of(name: str) -> str | None:
    """The module that an imported name is, or is in."""
    return next((each for each in (name, name.rpartition(".")[0]) if each in MODULES), None)


def test_a_room_imports_only_from_those_it_may() -> None:
    forbidden = {
        f"{module} imports {name}"
        for module in MODULES.keys() - FACE
        for name in imports(module)
        if (into := room_of(name)) != (room := room_of(module)) and into not in MAY_IMPORT[room]
    }
    assert forbidden == set()


def test_rooms_are_in_order() -> None:
    """No package imports from itself through others."""
    TopologicalSorter(MAY_IMPORT).prepare()


def test_no_module_imports_itself_through_others() -> None:
    needs = {module: {into for name in imports(module) if (into := module_of(name))} - {module} for module in MODULES}
    TopologicalSorter(needs).prepare()


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
        for module, tree in MODULES.items()
        if module.partition(".")[0] == package
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names
    }
    assert named == set()


def test_functions_are_read_at_once() -> None:
    trees = MODULES | {file.stem: ast.parse(file.read_text()) for file in (ROOT / "benchmarks").glob("*.py")}
    long = {
        f"{module}.{node.name}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 60
    }
    assert long == set()


def test_only_the_session_builder_makes_a_session() -> None:
    makers = {name for name, tree in MODULES.items() if "SparkSession.builder" in ast.unparse(tree)}
    assert makers == {"spark.session"}
