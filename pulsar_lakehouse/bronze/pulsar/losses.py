"""Decide from what the broker holds of a partition whether messages were lost before a stream read them."""

from dataclasses import dataclass

from .admin import Held
from .positions import BEGINNING, Position


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Entries of a partition that are gone, or may be gone, and were not read."""

    partition: str
    after: Position
    """The last entry that was read."""
    resume: Position
    """The entries after this position still exist."""
    reason: str
    entries: int = 0
    """The least number of entries that are gone; 0 if it is not known."""
    can_resume: bool = True
    """False if there is nothing left to read, or if its positions overlap those already read."""
    exists: bool = True
    """Whether the topic still has the partition."""

    def __str__(self) -> str:
        return f"{self.partition}: {self.reason}"


def find_loss(
    partition: str, after: Position, held: Held | None, subscription: str | None, created: str | None = None
) -> Loss | None:
    """What is lost of a partition after `after`, the last entry that was read; None if nothing is lost.

    `held` is what the broker holds; None if there is no such partition. `created` is when the partition that was read
    was created; None if that is not known.

    The broker deletes the oldest ledgers first, and none that the subscription needs. So nothing is lost as long as
    the ledger of `after` exists, wherever the subscription is. Once that ledger is gone, the subscription must be at
    `after`, or before the first entry of a ledger: the broker moves a subscription there once everything earlier is
    acknowledged.
    """
    if held is None:
        if after == BEGINNING and created is None:
            return None
        reason = f"the last entry read is {after}, but the partition no longer exists"
        return Loss(partition=partition, after=after, resume=after, reason=reason, can_resume=False, exists=False)
    if held.compacted and after == BEGINNING:
        return None  # the broker deletes no ledger before compaction has read it
    if created and held.created and held.created != created:
        return _recreated(partition, after, held, created)
    if after > held.last and after.entry >= 0:
        reason = f"the last entry read is {after}, but the broker's last entry is {held.last}: the topic was recreated"
        return Loss(partition=partition, after=after, resume=after, reason=reason, can_resume=False)
    return None if after.ledger >= held.first else _deleted(partition, after, held, subscription)


def _recreated(partition: str, after: Position, held: Held, created: str) -> Loss:
    resume = Position(held.first, -1)
    clash = resume <= after
    which = "and its positions overlap those already read" if clash else "and messages not yet read are lost"
    reason = (
        f"the last entry read is {after}, of the partition created at {created}; it was recreated at "
        f"{held.created}, {which}"
    )
    return Loss(partition=partition, after=after, resume=resume, reason=reason, can_resume=not clash)


def _deleted(partition: str, after: Position, held: Held, subscription: str | None) -> Loss | None:
    """What is lost if the broker has deleted the ledger of `after`; None if everything in it had been read."""
    cursor = held.cursor(subscription)
    ahead = [found for found in (cursor, held.last) if found and found > after and found.entry >= 0]
    gone = [found for found in ahead if found.ledger < held.first]
    unguarded = cursor is None and after != BEGINNING and (after.entry >= 0 or subscription is not None)
    if not (gone or cursor in ahead or unguarded):
        return None
    # Ledgers in between are not counted: their sizes are no longer known.
    entries = max((found.entry - (after.entry if found.ledger == after.ledger else -1) for found in gone), default=0)
    moved = f"the subscription was moved ahead to {cursor}, and " if cursor in ahead else ""
    last_read = "the first entries" if after == BEGINNING else f"the ledger of {after}, the last entry read"
    begin = f"now begins with {held.ledgers[0].id}:0" if held.ledgers else "now holds nothing"
    between = f"At least {entries:,} entries between are lost" if entries else "Messages between may be lost"
    reason = f"{moved}the broker no longer has {last_read}; the partition {begin}. {between}"
    return Loss(partition=partition, after=after, resume=Position(held.first, -1), entries=entries, reason=reason)
