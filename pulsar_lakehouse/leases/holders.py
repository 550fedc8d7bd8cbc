"""Who holds a lease, a turn or a claim: a record that the holder writes there, for others to read."""

import os
import socket
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
        if self is UNKNOWN:
            return "another process"
        return f"pid {self.pid} on {self.host} (`lakehouse {self.command}`, since {self.since:%H:%M:%S} UTC)"


UNKNOWN = Holder.here("", "step")
"""Stands for a holder that has left no record that this release reads."""


def known(told: object) -> Holder:
    """The holder that a record names; UNKNOWN if it is torn, or of another release."""
    try:
        return Holder.model_validate(told)
    except ValidationError:
        return UNKNOWN


def busy(table: str, holder: Holder) -> BusyError:
    return BusyError(f"{table} is being written by {holder}: wait until it ends, or stop it")
