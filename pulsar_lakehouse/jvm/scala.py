"""Compiles our Scala code, with the Scala compiler that comes with Spark."""

import hashlib
import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyspark

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.locks import make_once
from pulsar_lakehouse.progress import spinner


def compiled(source: Path, cache: Path, uses: Sequence[Path] = ()) -> Path:
    """The jar of a Scala file, compiled if `cache` lacks it. Raises LakehouseError if that fails.

    `uses` are jars that it needs beside those of Spark.
    """
    made_of = source.read_bytes() + pyspark.__version__.encode()
    jar = cache / f"{source.stem}-{hashlib.sha256(made_of).hexdigest()[:12]}.jar"
    return make_once(source.stem, jar, partial(_compile, source, uses))


def _compile(source: Path, uses: Sequence[Path], jar: Path) -> None:
    draft = jar.with_suffix(".part.jar")
    class_path = os.pathsep.join(map(str, [Path(pyspark.__file__).parent / "jars" / "*", *uses]))
    command: list[str | Path] = [java_home() / "bin" / "java", "-cp", class_path]
    command += ["scala.tools.nsc.Main", "-usejavacp", "-d", draft, source]
    with spinner(f"Compiling {source.name}, once"):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise LakehouseError(f"{source}: does not compile: {done.stdout.strip().partition(chr(10))[0]}")
    draft.rename(jar)
