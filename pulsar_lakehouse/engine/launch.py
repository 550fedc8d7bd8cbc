"""Starts a JVM with PySpark's gateway."""

import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Where a JVM answers calls, and the secret that it asks for."""

    port: int
    secret: str


class EndedError(Exception):
    """The JVM ended before it answered, with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def launch(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    answer: Path,
    log: Path,
    folder: str | None = None,
    inherited: Sequence[int] = (),
    in_child: Callable[[], object] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the command, whose JVM will write its gateway to the file `answer`. It ends when its standard input does.

    It runs in `folder`, by default in that of this process. `inherited` are file descriptors that it keeps open.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=folder,
            pass_fds=tuple(inherited),
            env={**environment, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)},
            preexec_fn=in_child,
        )


def gateway_of(process: subprocess.Popen[bytes], answer: Path) -> Gateway:
    """Wait until the JVM has answered. Raises EndedError if it ends before."""
    while not answer.exists():
        if (code := process.poll()) is not None:
            raise EndedError(code)
        time.sleep(0.1)
    told = answer.read_bytes()  # the port, the length of the secret, and the secret
    return Gateway(port=struct.unpack_from("!i", told)[0], secret=told[8:].decode())
