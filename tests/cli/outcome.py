"""How a command ended, and what it printed."""

from collections.abc import Callable
from typing import NamedTuple


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The last line on standard error."""
        return self.err.strip().splitlines()[-1]


Command = Callable[..., Outcome]
