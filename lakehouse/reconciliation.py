"""Reconciliation, the proof that nothing was lost: what landed of a topic equals what its tables hold of it."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """The messages of a topic, by what became of them.

    `problems` are one line each; a topic without any holds.
    """

    topic: str
    landed: int
    accounted: Mapping[str, int]
    problems: tuple[str, ...] = ()

    @property
    def difference(self) -> int:
        """Landed messages less those accounted for; 0 alone proves nothing, as one can be lost and one be twice."""
        return self.landed - sum(self.accounted.values())

    @property
    def holds(self) -> bool:
        return self.difference == 0 and not self.problems

    def __str__(self) -> str:
        """The equation of the topic in one line, with what is wrong with it."""
        accounted = " + ".join(f"{count:,} {status}" for status, count in self.accounted.items())
        equation = f"{self.topic}: {self.landed:,} landed {'=' if self.holds else '≠'} {accounted}"
        return "; ".join((equation, *self.problems))
