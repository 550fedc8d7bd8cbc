"""Archives of the classes that a JVM has loaded. A later JVM loads them from there in half the time (JEP 350)."""

import hashlib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from pulsar_lakehouse.jvm.java import java_home, make_folder

FOLDER = Path(sys.prefix) / "share" / "lakehouse-java"
DRAFT = f".{os.getpid()}"


def archive_options(program: str, made_of: Iterable[str], *, keep: bool) -> list[str]:
    """The JVM options that make a program load its classes from its archive.

    Without an archive and with `keep`, the options that make the JVM write a draft of one when it ends; `settle` turns
    the draft into the archive. Without either, no options. `made_of` identifies the program's version: another value
    means another archive.
    """
    java = (java_home() / "bin" / "java").stat()
    parts = "\n".join([*made_of, str(java.st_mtime_ns), str(java.st_size)])
    archive = FOLDER / f"{program}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}.jsa"
    for draft in FOLDER.glob(f"{program}-*.[0-9]*"):
        if not psutil.pid_exists(int(draft.suffix[1:])):  # the process was killed, but its JVM still wrote the draft
            with suppress(OSError):  # this user can't write the folder
                draft.unlink()
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    if not keep:
        return []
    try:
        make_folder(FOLDER)
    except OSError:
        return []
    return [f"-XX:ArchiveClassesAtExit={archive.with_suffix(DRAFT)}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def settle(program: str, *, keep: bool) -> None:
    """After the program's JVM has ended: make its draft of this process the archive, or remove it without `keep`."""
    for draft in FOLDER.glob(f"{program}-*{DRAFT}"):
        if keep:
            for other in FOLDER.glob(f"{program}-*.jsa"):
                other.unlink(missing_ok=True)  # another process may remove it at the same time
            draft.chmod(0o644)
            draft.rename(draft.with_suffix(".jsa"))
        else:
            draft.unlink()
