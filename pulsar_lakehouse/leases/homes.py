"""Homes: the locks of tables are in one, and the checkpoints of streams, unless they are set to be elsewhere."""

import socket
import uuid
from pathlib import Path

from pulsar_lakehouse import disk
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.locks import exclusive
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import has_tables, said_once

ID = Path("leases") / ".id"
"""The file in a home that has its id."""
WRITER = ".home"
"""The file in a folder of tables that says which home writes them."""


def home_id(settings: Settings) -> str:
    """An id of the home, which it keeps when it is moved, and which a copy of it has, too."""
    file = settings.home / ID
    with exclusive(file.with_suffix(".lock")):
        if not file.exists() or not file.stat().st_size:  # a power cut left it empty, with an early release
            disk.write(file, uuid.uuid4().hex.encode())
        return file.read_text()


def refuse_other_home(settings: Settings) -> None:
    """Raises ConfigurationError if the tables are in a folder of their own that another home writes.

    If none does, this one has the folder from now on. Others would not see its locks, and would land messages again.
    """
    if not settings.warehouse or has_tables(settings):
        return
    own, at = home_id(settings), f"{socket.gethostname()}:{settings.home.resolve()}"
    id, _, home = said_once(settings, WRITER, f"{own} {at}").partition(" ")
    if id != own:
        root = settings.warehouse_root
        line = f"only the home {home} may write here: use it, or remove {Path(root) / WRITER} if it is gone for good"
        raise ConfigurationError(f"{root}: {line}")
