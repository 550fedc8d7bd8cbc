"""What projects import: one package with two modules, which loads little."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pulsar_lakehouse

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pulsar_lakehouse"
FACE = {"pulsar_lakehouse", "pulsar_lakehouse.testing", "pulsar_lakehouse.airflow"}
PROJECTS = sorted([*PACKAGE.glob("starter/**/*.py"), *PACKAGE.glob("domains/*/declarations/*.py")])
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")])
HEAVY = {"delta", "deltalake", "duckdb", "numpy", "obstore", "pandas", "pulsar", "pyarrow", "pydantic_settings"}
"""Packages that declarations do not load."""


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded after Python has run the code."""
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    return set(subprocess.check_output(command, text=True).split())


def test_the_package_alone_loads_nothing_else() -> None:
    before = loaded_by("import importlib, typing")
    assert loaded_by("import importlib, typing, pulsar_lakehouse") - before == {"pulsar_lakehouse"}


def test_declarations_load_pyspark_and_sqlglot_but_no_engine_and_no_spark() -> None:
    """The types of PySpark are in a package that loads its functions, too."""
    names = ", ".join(pulsar_lakehouse.__all__)
    loaded = loaded_by(f"from pulsar_lakehouse import {names}\nfrom pyspark import SparkContext\n" + STOPPED)
    assert {"pyspark.sql.types", "pyspark.sql.functions", "sqlglot"} <= loaded
    assert {name.partition(".")[0] for name in loaded} & HEAVY == set()


STOPPED = "assert SparkContext._gateway is None, 'Spark was started'"


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Entitty' from 'pulsar_lakehouse'"):
        exec("from pulsar_lakehouse import Entitty")


def imports(code: str) -> Iterator[str]:
    """The modules of ours from which code imports."""
    for node in ast.walk(ast.parse(code)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        yield from (name for name in names if name.partition(".")[0] == "pulsar_lakehouse")


@pytest.mark.parametrize("file", PROJECTS, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_project_imports_from_the_face_alone(file: Path) -> None:
    assert set(imports(file.read_text())) <= FACE


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_imports_from_the_face_alone(page: Path) -> None:
    text = page.read_text()
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    shown = [*blocks, *re.findall(r"`(from \w+(?:\.\w+)* import [\w, ]+)`", text)]
    assert {name for code in shown for name in imports(code)} <= FACE
    assert [code for code in shown if re.search(r"^from (silver|gold|bronze|jobs|lakehouse)\b", code, re.M)] == []
