"""The bill of materials has all that `uv.lock` and the lists of artifacts name, and each jar of Spark."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pyspark
import pytest

from docs.sbom import TESTS, bill
from pulsar_lakehouse.downloads.artifacts import LIST
from tests.test_wheel import CHECKOUT, UV


@pytest.fixture(scope="module")
def components() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bill(str(UV))["components"]
    return found


def test_it_has_each_locked_package(components: list[dict[str, Any]]) -> None:
    locked = tomllib.loads((CHECKOUT / "uv.lock").read_text())["package"]
    others = [each for each in locked if each["name"] != "pulsar-lakehouse"]
    named = {each["purl"] for each in components if each.get("purl", "").startswith("pkg:pypi/")}
    assert named == {f"pkg:pypi/{each['name']}@{each['version']}" for each in others}


def test_it_has_each_file_that_is_downloaded(components: list[dict[str, Any]]) -> None:
    checksums = {each["hashes"][0]["content"] for each in components if "hashes" in each}
    listed = re.findall(r'e:sha512="(\w+)"', LIST.read_text() + TESTS.read_text())
    assert len(listed) > 50
    assert set(listed) - checksums == set()


def test_it_has_each_jar_of_spark(components: list[dict[str, Any]]) -> None:
    jars = Path(pyspark.__file__).parent.glob("jars/*.jar")
    assert {f"pyspark/jars/{jar.name}" for jar in jars} - {each["bom-ref"] for each in components} == set()


@pytest.mark.parametrize(
    ("name", "purl", "scope"),
    [
        ("duckdb", "pkg:pypi/duckdb@", None),
        ("pytest", "pkg:pypi/pytest@", "excluded"),
        ("hadoop-aws", "pkg:maven/org.apache.hadoop/hadoop-aws@", None),
        ("chromium", "pkg:npm/%40sparticuz/chromium@", "excluded"),
        ("spark-core_2.13", "pkg:maven/org.apache.spark/spark-core_2.13@", None),
        ("derby", None, None),  # whose jar does not say whose it is
    ],
)
def test_a_component_has_its_coordinates_and_its_scope(
    components: list[dict[str, Any]], name: str, purl: str | None, scope: str | None
) -> None:
    (found,) = [each for each in components if each["name"] == name]
    expected = purl and f"{purl}{found['version']}"
    assert (found.get("purl"), found.get("scope")) == (expected, scope)
