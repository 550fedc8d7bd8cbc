"""How the engine and a command talk: JSON texts, each after its length, and file descriptors."""

import json
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 10.0
"""Seconds within which the other side says something, or else is taken for hung."""
AT_ONCE = 250
"""File descriptors in one message; the system takes 253."""


def send(connection: socket.socket, said: object, files: Sequence[int] = ()) -> None:
    """Send what JSON can say, and copies of these open files. Raises OSError if nobody takes it."""
    text = json.dumps([said, len(files)]).encode()
    connection.sendall(struct.pack("!i", len(text)) + text)
    send_files(connection, files)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """What was sent, and the copies of files, which the caller closes. Raises OSError if nobody sends any more."""
    said, count = json.loads(_exactly(connection, *struct.unpack("!i", _exactly(connection, 4))))
    files: list[int] = []
    try:
        while len(files) < count:
            files += receive_files(connection)
    except OSError:  # the other side was killed in the middle: locks on files that stay open would outlive it
        close(files)
        raise
    return said, files


def send_files(connection: socket.socket, files: Sequence[int]) -> None:
    for start in range(0, len(files), AT_ONCE):
        socket.send_fds(connection, [b"."], files[start : start + AT_ONCE])


def receive_files(connection: socket.socket) -> list[int]:
    """The files of one message. Raises OSError if nobody sends any more."""
    text, files, *_ = socket.recv_fds(connection, 1, AT_ONCE)
    if not text:
        raise ConnectionResetError("the other side has ended")
    return files


def close(files: Sequence[int]) -> None:
    for file in files:
        os.close(file)


def _exactly(connection: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        part = connection.recv(size - len(text))
        if not part:
            raise ConnectionResetError("the other side has ended")
        text += part
    return text


@contextmanager
def address(path: Path) -> Iterator[str]:
    """The path of a socket, whose name may have 107 bytes at most: a longer one is given by the folder, opened."""
    if len(os.fsencode(path)) < 100:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def user_of(connection: socket.socket) -> int:
    """The user whose process is at the other end."""
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", told)[1])


def interpreter() -> list[str]:
    """What must be equal for a process to be forked that is like one of its own: user, Python, libraries, this code."""
    folders = [Path(each) for each in sys.path if each.endswith("-packages")]
    files = [each for each in (*folders, *Path(__file__).parent.glob("*.py")) if each.exists()]
    return [
        *(str(each) for each in (sys.prefix, sys.version, os.getuid(), sys.warnoptions, sys._xoptions)),
        *(os.environ.get(name, "") for name in ("PYTHONPATH", "LANG", "LC_ALL")),
        *(str(Path("/proc/self/ns", name).readlink()) for name in ("mnt", "net", "pid", "user")),
        *sorted(f"{each} {each.stat().st_mtime_ns}" for each in files),
    ]
