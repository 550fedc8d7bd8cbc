"""Writes what is installed and downloaded as a bill of materials, in CycloneDX: `make sbom`.

uv lists the Python packages that it has locked. Here are added the files that lists of artifacts name, and the jars
within the package of PySpark, which say themselves what they are. What only development needs has the scope `excluded`.
"""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pyspark

from pulsar_lakehouse.downloads.artifacts import CHECKSUM, CLASSIFIER, LIST

TESTS = Path(__file__).parent.parent / "tests" / "debezium.xml"
OF_TESTS = ("chromium", "s3proxy")
"""What `artifacts.xml` lists for tests only."""
POM = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")

Component = dict[str, Any]


def bill(uv: str) -> dict[str, Any]:
    whole = _packages(uv)
    shipped = {each["purl"] for each in _packages(uv, "--no-dev")["components"]}
    for each in whole["components"]:
        if each["purl"] not in shipped:
            each["scope"] = "excluded"
    whole["components"] += [*_files(LIST), *_files(TESTS), *_jars_of_spark()]
    return whole


def _packages(uv: str, *options: str) -> dict[str, Any]:
    command = [uv, "export", "--quiet", "--locked", "--all-extras", "--format=cyclonedx1.5", *options]
    found: dict[str, Any] = json.loads(subprocess.check_output(command))
    return found


def _files(listed: Path) -> Iterator[Component]:
    for each in ElementTree.parse(listed).iter("dependency"):
        (artifact,) = each
        checksum, kind, classifier = artifact.attrib[CHECKSUM], artifact.attrib["type"], artifact.get(CLASSIFIER)
        organization, name, version = (each.attrib[part] for part in ("org", "name", "rev"))
        purl = _maven(organization, name, version, classifier=classifier, type=kind if kind != "jar" else None)
        if url := artifact.get("url"):
            purl = re.sub("https://registry.npmjs.org/@(.*)/-/.*", rf"pkg:npm/%40\1@{version}", url)
        is_of_tests = listed == TESTS or each.attrib["conf"].startswith(OF_TESTS)
        component = _component(organization, name, version, purl, checksum, f"{each.attrib['conf']}/{purl}")
        yield component | ({"scope": "excluded"} if is_of_tests else {})


def _jars_of_spark() -> Iterator[Component]:
    for jar in sorted(Path(pyspark.__file__).parent.glob("jars/*.jar")):
        checksum, ref = hashlib.sha512(jar.read_bytes()).hexdigest(), f"pyspark/jars/{jar.name}"
        with ZipFile(jar) as archive:
            poms = [archive.read(name).decode() for name in archive.namelist() if POM.fullmatch(name)]
        told = [dict(re.findall(r"^(\w+)=(\S+)", pom, re.MULTILINE)) for pom in poms]  # more than one if it is shaded
        own = [pom for pom in told if jar.stem.startswith(f"{pom['artifactId']}-{pom['version']}")]
        if own:
            organization, name, version = (own[0][part] for part in ("groupId", "artifactId", "version"))
            classifier = jar.stem.removeprefix(f"{name}-{version}").removeprefix("-")
            purl = _maven(organization, name, version, classifier=classifier)
            yield _component(organization, name, version, purl, checksum, ref)
        else:
            name, version = re.split(r"-(?=\d)", jar.stem, maxsplit=1)
            yield _component(None, name, version, None, checksum, ref)


def _maven(organization: str, name: str, version: str, **qualifiers: str | None) -> str:
    told = "&".join(f"{each}={value}" for each, value in qualifiers.items() if value)
    return f"pkg:maven/{organization}/{name}@{version}{'?' if told else ''}{told}"


def _component(
    organization: str | None, name: str, version: str, purl: str | None, checksum: str, ref: str
) -> Component:
    told = {"type": "library", "bom-ref": ref, "group": organization, "name": name, "version": version, "purl": purl}
    known = {part: value for part, value in told.items() if value is not None}
    return {**known, "hashes": [{"alg": "SHA-512", "content": checksum}]}


if __name__ == "__main__":
    json.dump(bill(sys.argv[1]), sys.stdout, indent=2)
