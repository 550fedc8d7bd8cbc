"""Locks between processes. The system lets go of them when their holder dies, however it dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehouse.errors import LakehouseError


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, after waiting for whoever else holds it. Raises OSError if it can't be made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_once(name: str, path: Path, make: Callable[[Path], None]) -> Path:
    """The path, which `make` makes if it is not there, in one process at a time for each name and folder.

    Raises LakehouseError, which names the folder, if the system does not let it be made.
    """
    if not path.exists():
        try:
            with exclusive(path.parent / f"{name}.lock"):
                if not path.exists():  # nobody else made it while this process waited for the lock
                    make(path)
        except OSError as error:
            raise LakehouseError(f"{path.parent}: can't keep {name} there: {error.strerror or error}") from error
    return path
