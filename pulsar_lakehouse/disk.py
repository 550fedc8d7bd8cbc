"""What is on the disk, and so is still there after a loss of power.

One rule is followed: what something relies on is on the disk before it. For Spark, `local_files.scala` does so.
delta-rs does not sync: `power_cuts.py` removes a commit of which a loss of power has left a part.
"""

import ctypes
import os
import sys
from contextlib import suppress
from errno import ENOTDIR
from pathlib import Path
from uuid import uuid4

_LIBC = ctypes.CDLL(None, use_errno=True)


def sync_all(path: str | Path) -> None:
    """Wait until all that any process has written to the file system of a path is on its disk."""
    if sys.platform != "linux":
        os.sync()
        return
    at = os.open(path, os.O_RDONLY)
    try:
        if _LIBC.syncfs(at):
            raise OSError(number := ctypes.get_errno(), os.strerror(number), str(path))
    finally:
        os.close(at)


def write(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file, which is whole or not there, for readers and after a loss of power.

    The folders above it are made. Raises FileExistsError if there is a file that it shall not `replace`, and
    NotADirectoryError if there is one in place of such a folder.
    """
    _make(path.parent)
    draft = path.with_name(f"{path.name}#{uuid4().int}")  # such files are not listed by obstore and delta-rs
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(folder)) from None
        _sync_folder(folder.parent)


def _sync_folder(path: Path) -> None:
    at = os.open(path, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
