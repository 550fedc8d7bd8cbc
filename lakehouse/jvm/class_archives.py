"""Classes that one JVM has loaded, kept for later ones, which load them in half the time (JEP 350)."""

import hashlib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from lakehouse.jvm.java import java_home, make_folder

FOLDER = Path(sys.prefix) / "share" / "lakehouse-java"
DRAFT = f".{os.getpid()}"


def archive_options(program: str, made_of: Iterable[str], *, keep: bool) -> list[str]:
    """The options by which the JVM of a program, which is `made_of` this, takes its classes from its archive.

    Without an archive, those by which it is to `keep` its own at its end, in a draft that `settle` makes one; or none.
    """
    java = (java_home() / "bin" / "java").stat()
    parts = "\n".join([*made_of, str(java.st_mtime_ns), str(java.st_size)])
    archive = FOLDER / f"{program}-{hashlib.sha256(parts.encode()).hexdigest()[:12]}.jsa"
    for draft in FOLDER.glob(f"{program}-*.[0-9]*"):
        if not psutil.pid_exists(int(draft.suffix[1:])):  # its process was killed, and its JVM wrote it all the same
            with suppress(OSError):  # a folder that this user may only read
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
    """Make an archive of what the program's JVM, now ended, has written for this process, or remove that."""
    for draft in FOLDER.glob(f"{program}-*{DRAFT}"):
        if keep:
            for other in FOLDER.glob(f"{program}-*.jsa"):
                other.unlink(missing_ok=True)  # another process may do the same
            draft.chmod(0o644)
            draft.rename(draft.with_suffix(".jsa"))
        else:
            draft.unlink()
