"""What a stream was to read and can't any more, judged by what the broker says of a partition."""

from dataclasses import dataclass

from bronze.pulsar.admin import Held
from bronze.pulsar.positions import BEGINNING, Position


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Entries of a partition that are gone, or may be, though they were not read."""

    partition: str
    after: Position
    """The last entry that was read."""
    resume: Position
    """What comes after this position is still there."""
    entries: int
    """How many are gone at least, as far as that is known."""
    reason: str
    can_resume: bool = True
    """False if there is nothing to go on with, or if its positions are among those that were read."""

    def __str__(self) -> str:
        return f"{self.partition}: {self.reason}"


def find_loss(
    partition: str, after: Position, held: Held | None, subscription: str | None, created: str | None = None
) -> Loss | None:
    """What is lost of a partition after `after`, the last entry that was read; None if nothing is.

    `held` is what the broker has, None if there is no such partition. `created` is when the broker made the partition
    that was read; None if that is not known.

    The broker deletes ledgers from the oldest on, and none that the subscription needs. So nothing is lost as long as
    the ledger of `after` is there, wherever the subscription stands. Once that ledger is gone, the subscription must
    stand at `after`, or before the first entry of a ledger, where the broker moves one that has read all before it.
    """
    if held is None:
        if after == BEGINNING and created is None:
            return None
        reason = f"the last entry read is {after}, but there is no such partition any more"
        return Loss(partition=partition, after=after, resume=after, entries=0, reason=reason, can_resume=False)
    resume = Position(held.first, -1)
    if created and held.created and held.created != created:
        clash = resume <= after
        which = "and its positions are among those that were read" if clash else "and what was not read of it is lost"
        reason = (
            f"the last entry read is {after}, of the partition that was made at {created}; it was made anew at "
            f"{held.created}, {which}"
        )
        return Loss(partition=partition, after=after, resume=resume, entries=0, reason=reason, can_resume=not clash)
    if after > held.last and after.entry >= 0:
        reason = (
            f"the last entry read is {after}, but the broker has come no further than {held.last}: the topic was made "
            "anew"
        )
        return Loss(partition=partition, after=after, resume=after, entries=0, reason=reason, can_resume=False)
    if after.ledger >= held.first:
        return None
    cursor = held.cursor(subscription)
    ahead = [found for found in (cursor, held.last) if found and found > after and found.entry >= 0]
    gone = [found for found in ahead if found.ledger < held.first]
    unguarded = cursor is None and after != BEGINNING and (after.entry >= 0 or subscription is not None)
    if not (gone or cursor in ahead or unguarded):
        return None
    entries = max((_entries_at_least(after, found) for found in gone), default=0)
    moved = f"the subscription was moved ahead to {cursor}, and " if cursor in ahead else ""
    last_read = "what came first" if after == BEGINNING else f"the ledger of {after}, the last entry read"
    begin = f"now begins with {held.ledgers[0].id}:0" if held.ledgers else "now holds nothing"
    between = f"At least {entries:,} entries between are lost" if entries else "Messages between may be lost"
    reason = f"{moved}the broker no longer has {last_read}; the partition {begin}. {between}"
    return Loss(partition=partition, after=after, resume=resume, entries=entries, reason=reason)


def _entries_at_least(after: Position, last: Position) -> int:
    """Entries after one position up to another. Of the ledgers between, nobody knows any more how many they had."""
    return last.entry - after.entry if last.ledger == after.ledger else last.entry + 1
