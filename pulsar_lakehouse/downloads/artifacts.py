"""Downloads, once: the jars that Spark lacks, the embedded broker, the report's scripts, and what tests need.

`artifacts.xml` lists the files and their checksums. The Ivy that comes with Spark fetches them, so it can use a
machine's Maven mirror or proxy like any other Java tool.
"""

import hashlib
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pyspark

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.locks import make_once
from pulsar_lakehouse.progress import spinner

LIST = Path(__file__).with_name("artifacts.xml")
CHECKSUM = "{http://ant.apache.org/ivy/extra}sha512"
CLASSIFIER = "{http://ant.apache.org/ivy/maven}classifier"
SILENT_SECONDS = 60
"""How long a server may send nothing. Ivy itself would wait for ever."""
FILE_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True, kw_only=True)
class Download:
    """A configuration in a list of artifacts; `files` maps file names to SHA-512 checksums."""

    name: str
    title: str
    files: dict[str, str]
    listed: Path = LIST


def downloaded(name: str, cache: Path, *, listed: Path = LIST) -> list[Path]:
    """The files of a configuration in a list, downloaded if `cache` lacks them. An archive is unpacked.

    Raises LakehouseError if that fails.
    """
    download = _listed(name, listed)
    digest = hashlib.sha256("".join(download.files.values()).encode()).hexdigest()[:12]
    folder = make_once(name, cache / f"{name}-{digest}", partial(_fetch, download))
    files = [folder / file for file in sorted(download.files)]
    # The SQL endpoint may read files, but not list the folder. An archive is not there any more.
    return files if files[0].exists() else sorted(folder.iterdir())


def pulsar_home(cache: Path) -> Path:
    """The unpacked Pulsar distribution, downloaded if `cache` lacks it. Raises LakehouseError if that fails."""
    return downloaded("pulsar", cache)[0]


def _listed(name: str, listed: Path) -> Download:
    root = ElementTree.parse(listed).getroot()
    title = next(conf.attrib["description"] for conf in root.iter("conf") if conf.attrib["name"] == name)
    files = {}
    for dependency in root.iter("dependency"):
        if dependency.attrib["conf"].startswith(f"{name}->"):
            (artifact,) = dependency
            parts = [artifact.attrib["name"], dependency.attrib["rev"], artifact.get(CLASSIFIER)]
            files[f"{'-'.join(filter(None, parts))}.{artifact.attrib['type']}"] = artifact.attrib[CHECKSUM]
    return Download(name=name, title=title, files=files, listed=listed)


def _fetch(download: Download, folder: Path) -> None:
    draft = folder.with_suffix(".part")
    shutil.rmtree(draft, ignore_errors=True)  # left by a killed download
    try:
        _run_ivy(download, draft)
        for name, checksum in download.files.items():
            file = draft / "files" / name
            _verify(file, checksum)
            if name.endswith(".tar.gz"):
                shutil.unpack_archive(file, file.parent, filter="data")
                file.unlink()
        (draft / "files").rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _run_ivy(download: Download, draft: Path) -> None:
    draft.mkdir(parents=True)
    (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    command: list[str | Path] = [java_home() / "bin" / "java", "-jar", ivy, "-ivy", download.listed]
    command += ["-confs", download.name, "-cache", draft / "cache", "-retrieve", draft / "files" / FILE_PATTERN]
    message = f"Downloading {download.title}, once"
    with spinner(message) as status, (draft / "log").open("w") as log:
        ivy_process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        size, since = 0, time.monotonic()
        try:
            while ivy_process.poll() is None:
                if (now := _size(draft / "cache")) != size:
                    size, since = now, time.monotonic()
                elif time.monotonic() - since > SILENT_SECONDS:
                    raise LakehouseError(f"could not download {download.title}: nothing came for {SILENT_SECONDS} s")
                status.update(f"{message}: {size / 1e6:.0f} MB so far")
                time.sleep(0.2)
        finally:
            ivy_process.kill()
            ivy_process.wait()
    if ivy_process.returncode != 0:
        raise LakehouseError(
            f"could not download {download.title} (is there a network?): {_reason((draft / 'log').read_text())}"
        )


def _reason(log: str) -> str:
    """The line of Ivy's log that best explains the failure."""
    lines = [line.strip() for line in log.splitlines()]
    telling = [line for word in ("Exception", "No space", "denied", "not found") for line in lines if word in line]
    return (telling or lines or ["no reason given"])[0].lstrip(":! ")


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # renamed after it was listed
            total += file.stat().st_size
    return total


def _verify(file: Path, checksum: str) -> None:
    with file.open("rb") as content:
        actual = hashlib.file_digest(content, "sha512").hexdigest()
    if actual != checksum:
        raise LakehouseError(f"{file.name}: not the file that was expected: SHA-512 {actual}, should be {checksum}")
