"""Lets one of the calls fail with which a command changes files. `failing_writes.c` does it, in all its processes."""

import ctypes
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Self

NO_COMPILER = "needs Linux, and a C compiler as `cc`"
CALLS = ("open", "write", "rename", "link", "unlink", "sync", "truncate", "mkdir")
"""What is counted. An `open` is one that writes or creates, an `unlink` removes a file or a folder."""


class Failure(IntEnum):
    """What happens to a call. The disk is full for all later ones too, and after a crash, none is done."""

    NONE = 0
    ERROR = 1
    FULL = 2
    INTERRUPTED = 3
    SHORT = 4
    CRASH = 5
    KILL = 6


class _Control(ctypes.Structure):
    """As `control` in `failing_writes.c`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("on", "failure", "at", "crash_after", "calls", "failed", "crash_at")),
        *((name, ctypes.c_int64) for name in ("notes", "moment")),
        ("kinds", ctypes.c_int64 * len(CALLS)),
        ("what", ctypes.c_char * 1024),
    )


class Shim:
    """The calls under a folder, by all processes that are started in this environment.

    It is the same for all that are made in one `folder`, also by those processes.
    """

    def __init__(self, folder: Path, under: Path) -> None:
        self.folder, self.under = folder, under.resolve()
        file = folder / "control"
        if not file.exists():
            file.write_bytes(bytes(ctypes.sizeof(_Control)))
        self.notes, self.kept = file.with_suffix(".calls"), file.with_suffix(".kept")
        with file.open("r+b") as opened:
            self._control = _Control.from_buffer(mmap.mmap(opened.fileno(), 0))
        self.environment = {
            "LD_PRELOAD": str(compiled(folder)),
            "FAILING_WRITES": str(file),
            "FAILING_WRITES_UNDER": str(self.under),
        }

    @classmethod
    def of_this_process(cls) -> Self:
        """The one that this process was started with."""
        return cls(Path(os.environ["FAILING_WRITES"]).parent, Path(os.environ["FAILING_WRITES_UNDER"]))

    @contextmanager
    def failing(
        self, failure: Failure = Failure.NONE, at: int = 0, crash_after: int = 0, *, notes: bool = False
    ) -> Iterator[None]:
        """In the block, calls are counted from 1 on, and the one `at` fails, or the next one that can fail so.

        With `crash_after`, there is a crash so many calls later: while the failure is handled. With `notes`, calls are
        noted in `notes`, and what they remove is in `kept`.
        """
        control = self._control
        if notes:
            shutil.rmtree(self.kept, ignore_errors=True)
            self.kept.mkdir()
            self.notes.write_text("")
        ctypes.memset(ctypes.addressof(control), 0, ctypes.sizeof(control))
        control.failure, control.at, control.crash_after = failure, at, crash_after
        control.notes, control.on = notes, 1
        try:
            yield
        finally:
            control.on = 0

    @property
    def calls(self) -> int:
        """In the last block."""
        return int(self._control.calls)

    @property
    def counts(self) -> dict[str, int]:
        return dict(zip(CALLS, self._control.kinds, strict=True))

    @property
    def failed(self) -> str:
        """The call that failed, and its file; empty if none did."""
        return self._control.what.decode() if self._control.failed else ""


def has_compiler() -> bool:
    return sys.platform == "linux" and shutil.which("cc") is not None


def compiled(folder: Path) -> Path:
    library = folder / "failing_writes.so"
    source = Path(__file__).with_name("failing_writes.c")
    if not library.exists():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
