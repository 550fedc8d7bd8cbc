"""When which steps of `lakehouse run --every` are due, by times and by what was found. Nothing here sleeps or looks."""

from dataclasses import dataclass

from pulsar_lakehouse.jobs.new_data import Look, reasons_since

REST_SECONDS = 60.0
"""Most seconds between two rounds, in case there is something new that a look can't see."""
STATE_RESTS = 2.0
"""How long steps of state rest while there are facts to read, as a multiple of the time that they took."""
STATE_REST_SECONDS = 15.0
"""The most seconds of that rest: the first time, or with a backlog, they take long."""
LENT_SECONDS = 0.1
"""Fewest seconds between two rounds, in which maintenance or a check can begin."""


@dataclass(kw_only=True)
class Rounds:
    """All times are seconds of one clock."""

    every: float
    idle: Look | None = None
    """What was seen before the last round, if that was a whole one and found nothing to read."""
    ended: float = 0.0
    state_due: float = 0.0

    def is_due(self, *, at: float, seen: Look | None) -> bool:
        return any(reasons_since(self.idle, seen)) or at - self.ended >= REST_SECONDS

    def is_state_due(self, *, at: float) -> bool:
        return at >= self.state_due

    def state_ended(self, *, began: float, ended: float) -> None:
        self.state_due = ended + min((ended - began) * STATE_RESTS, STATE_REST_SECONDS)

    def round_ended(self, *, at: float, seen: Look | None, changes: int | None, facts: int) -> None:
        """It has read so many `changes` of state, None if those steps had a rest, and so many `facts`."""
        self.ended, self.idle = at, seen if changes == 0 and facts == 0 else None
        if not facts:
            self.state_due = 0.0

    def pause(self, *, began: float, ended: float) -> float:
        """Seconds until the next look."""
        return max(LENT_SECONDS, self.every - (ended - began))
