"""Passes our settings through other programs to a command that they start: in a file, not in the environment."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.settings import PREFIX, variables

FILE = f"{PREFIX}HANDED_OVER"
"""The environment variable with the path of the file."""


@contextmanager
def handed_over() -> Iterator[dict[str, str]]:
    """The variables to add to the program's environment, while the block runs.

    They blank our settings and name a file, from which `take` restores them.
    """
    given = variables()
    with NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(given, file)
        file.flush()
        yield {**dict.fromkeys(given, ""), FILE: file.name}


def take() -> None:
    """Restore the settings from the file, if there is one. Variables that are set in the environment take precedence.

    Raises ConfigurationError if the file can't be read, for example because the program that wrote it has ended.
    """
    if name := os.environ.pop(FILE, None):
        try:
            given: dict[str, str] = json.loads(Path(name).read_text())
        except OSError as error:
            raise ConfigurationError(f"{FILE} {name}: {error.strerror}: the program that wrote it has ended") from error
        os.environ.update({name: value for name, value in given.items() if not os.environ.get(name)})
