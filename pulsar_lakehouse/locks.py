"""Locks between processes, and between threads.

The operating system releases a lock between processes when its holder dies, even after `kill -9`.
"""

import fcntl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path

from pulsar_lakehouse.errors import LakehouseError


class Permit:
    """Lets a thread write until another one withdraws it, such as before a lease ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_withdrawn = False

    @contextmanager
    def used(self) -> Iterator[None]:
        """The block may write. Raises CancelledError if the permit is withdrawn."""
        with self._lock:
            if self._is_withdrawn:
                raise CancelledError
            yield

    def withdraw(self) -> None:
        """Wait for a block that writes; no other one begins."""
        with self._lock:
            self._is_withdrawn = True


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock file at `path` and hold it while the block runs. Raises OSError if it can't be created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_once(name: str, path: Path, make: Callable[[Path], None]) -> Path:
    """Return `path`; call `make(path)` first if it does not exist.

    Only one process at a time does so for each `name` and folder. Raises LakehouseError, which names the folder, for an
    OSError.
    """
    if not path.exists():
        try:
            with exclusive(path.parent / f"{name}.lock"):
                if not path.exists():  # another process may have made it while this one waited for the lock
                    make(path)
        except OSError as error:
            raise LakehouseError(f"{path.parent}: can't keep {name} there: {error.strerror or error}") from error
    return path
