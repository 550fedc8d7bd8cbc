"""Layers don't import each other, neither sideways nor backwards; the engine of each layer names no table."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "lakehouse": {"lakehouse"},
    "bronze": {"bronze", "lakehouse"},
    "silver": {"silver", "lakehouse"},
    "gold": {"gold", "lakehouse"},
    "expectations": {"expectations", "silver", "gold", "lakehouse"},
    "declarations": {"declarations", "expectations", "silver", "gold", "lakehouse"},
    "demo": {"demo", "lakehouse"},
    "jobs": {"jobs", "declarations", "bronze", "silver", "gold", "expectations", "lakehouse"},
    "dags": {"dags", "cli", "declarations", "jobs", "lakehouse"},
    "cli": {"cli", "dags", "demo", "jobs", "declarations", "bronze", "silver", "gold", "expectations", "lakehouse"},
}


def imports(file: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_it_may(package: str) -> None:
    ours = set(MAY_IMPORT) | {"benchmarks", "tests"}
    forbidden = {
        str(file.relative_to(ROOT)): sorted(wrong)
        for file in (ROOT / package).rglob("*.py")
        if (wrong := imports(file) & ours - MAY_IMPORT[package])
    }
    assert forbidden == {}


def test_the_pulsar_source_needs_nothing_of_this_project() -> None:
    files = (ROOT / "bronze" / "pulsar").glob("*.py")
    modules = {
        node.module
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in MAY_IMPORT
    }
    assert {module for module in modules if not (module or "").startswith("bronze.pulsar")} == set()


def test_only_the_session_builder_makes_a_session() -> None:
    makers = {
        str(file.relative_to(ROOT))
        for package in MAY_IMPORT
        for file in (ROOT / package).rglob("*.py")
        if "SparkSession.builder" in file.read_text()
    }
    assert makers == {"lakehouse/spark/session.py"}
