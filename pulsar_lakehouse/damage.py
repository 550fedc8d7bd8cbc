"""A file of a table that is not as it was written: the line that says which, and what heals it."""

import re

from pulsar_lakehouse.errors import PermanentError

DIFFER = "its checksums differ"
QUOTED = re.compile(r"\S+: \S+ is damaged \([^\n]*?\): `lakehouse [^`]+`[\w ]+")
"""Finds the line in errors of others that quote it."""
_FILE = re.compile(r".*/(bronze|silver|gold|quarantine|quality)/([^/]+)/(.+)")


class DamagedError(PermanentError):
    """A file of a table is not as it was written."""


def damaged(path: str, how: str) -> DamagedError:
    """The error about a file of a table."""
    return DamagedError(_line(path, f"is damaged ({how})"))


def unreadable(path: str, why: str) -> str:
    """The line on a file of a table that can't be read, which is perhaps for another reason."""
    return _line(path, f"can't be read ({why})")


def _line(path: str, what: str) -> str:
    if (found := _FILE.fullmatch(path)) is None:
        return f"{path} {what}"
    name = f"{found[1]}.{found[2]}"
    return f"{name}: {found[3]} {what}: {cure_of(name)}"


def cure_of(name: str) -> str:
    """What to do about a damaged table, as far as its name tells."""
    if name.startswith(("silver.", "gold.")):
        return f"`lakehouse rebuild {name} --approve` makes the table again"
    return f"`lakehouse check {name}` says what to do"
