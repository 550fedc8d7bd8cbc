"""Files with secrets, which somebody else renews."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from .options import PulsarSourceError

PAUSES = (0.1,) * 10
"""Pauses, in seconds, while a file is being written anew."""
T = TypeVar("T")


def read(option: str, path: str, parse: Callable[[str], T]) -> T:
    """What the file of an option has. Raises PulsarSourceError if it stays missing, or what `parse` refuses."""
    for pause in (*PAUSES, None):
        try:
            return parse(Path(path).read_text())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            failure = PulsarSourceError(f"option {option}: {path}: {why}")
        if pause:
            time.sleep(pause)
    raise failure
