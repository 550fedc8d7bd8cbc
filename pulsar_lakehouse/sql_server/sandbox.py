"""Restricts which files a process can use, with Landlock, which Linux offers to any process since 5.13."""

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls. Their numbers are the same on all architectures; glibc has no functions for them."""

VERSION, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38

EXECUTE, READ_FILE, READ_DIR, WRITE_FILE, TRUNCATE = 1 << 0, 1 << 2, 1 << 3, 1 << 1, 1 << 14
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""All rights to files that each ABI version of Landlock can restrict. Later versions add nothing that is used here."""


def confine(*, reads: Iterable[Path], writes: Iterable[Path]) -> bool:
    """Let this thread and all that it starts read and execute only `reads` and `writes`, and write only `writes`.

    A folder includes all that is in it. This can't be undone. Paths that don't exist are ignored. Without Landlock,
    nothing is restricted, and the result is False.
    """
    abi = landlock_version()
    if abi < 1:
        return False
    rights = RIGHTS[min(abi, max(RIGHTS))]
    attributes = struct.pack("=Q", rights)
    ruleset = _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for path in reads:
            _allow(ruleset, path, READ)
        for path in writes:
            _allow(ruleset, path, rights)
        _check(_libc().prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _call(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return True


def landlock_version() -> int:
    """The ABI version of the kernel's Landlock; below 1 if there is none."""
    if sys.platform != "linux":
        return 0
    return int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION))


def _allow(ruleset: int, path: Path, rights: int) -> None:
    with suppress(FileNotFoundError):
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rights = rights if path.is_dir() else rights & OF_FILES
            _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, file), 0)
        finally:
            os.close(file)


def _call(number: int, *arguments: object) -> int:
    return _check(_libc().syscall(number, *arguments))


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
