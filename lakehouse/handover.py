"""Settings for a command that other programs start for us: by a file, as they would have them in their environment."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from lakehouse.errors import ConfigurationError
from lakehouse.settings import PREFIX, variables

FILE = f"{PREFIX}HANDED_OVER"
"""The variable that names the file."""


@contextmanager
def handed_over() -> Iterator[dict[str, str]]:
    """What to add to the environment of the program: our settings are empty there, and `take` has them again."""
    given = variables()
    with NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(given, file)
        file.flush()
        yield {**dict.fromkeys(given, ""), FILE: file.name}


def take() -> None:
    """Take what was handed over, if there is anything, but for what the environment has.

    Raises ConfigurationError if the file is gone, as who wrote it is.
    """
    if name := os.environ.pop(FILE, None):
        try:
            given: dict[str, str] = json.loads(Path(name).read_text())
        except OSError as error:
            raise ConfigurationError(f"{FILE} {name}: {error.strerror}: who started this has ended") from error
        os.environ.update({name: value for name, value in given.items() if not os.environ.get(name)})
