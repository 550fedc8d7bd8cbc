"""Who holds a lease, a turn or a claim: a record that the holder writes there, for others to read."""

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ValidationError

from pulsar_lakehouse.errors import BusyError

Kind = Literal["step", "maintenance", "rounds"]
"""`maintenance` ends soon, so others wait for it. `rounds` lends its turns between two rounds."""


class Holder(BaseModel):
    pid: int
    host: str
    command: str
    kind: Kind
    since: AwareDatetime

    @classmethod
    def here(cls, command: str, kind: Kind) -> Self:
        """The present process, from now on."""
        return cls(pid=os.getpid(), host=socket.gethostname(), command=command, kind=kind, since=datetime.now(UTC))

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} (`lakehouse {self.command}`, since {self.since:%H:%M:%S} UTC)"


def known(told: object) -> Holder | None:
    """The holder; None if what is told is no such record, but a text of another release."""
    with suppress(ValidationError):
        return Holder.model_validate(told)
    return None


def is_maintenance(holder: Holder | None) -> bool:
    return holder is not None and holder.kind == "maintenance"


def name_of(holder: Holder | None) -> str:
    return str(holder) if holder else "another process"


def busy(table: str, holder: Holder | None) -> BusyError:
    return BusyError(f"{table} is being written by {name_of(holder)}: wait until it ends, or stop it")
