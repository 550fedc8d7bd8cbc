"""What `lakehouse forget` has erased: all messages that name the item, and no others."""

import re
from collections.abc import Iterator

from pulsar_lakehouse.bronze.erasures import ERASURES, REQUESTED
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.stored import is_stored
from tests.chaos.world import NotSurvivedError, World
from tests.lake import messages, read
from tests.oracle import Message, Position


def erased(settings: Settings) -> Iterator[tuple[str, Position]]:
    """Topic and position of each message that was erased, or is to be erased."""
    events = read(settings, ERASURES.name) if is_stored(settings, ERASURES.name) else []
    for message in (each for event in events if event["event"] == REQUESTED for each in event["messages"]):
        place = (message[part] for part in ("partition", "ledger_id", "entry_id", "batch_index"))
        yield message["topic"].rpartition("/")[2], Position(*place)


def check_erased(world: World, item: int) -> None:
    """Note what was erased since. It must be what names the item."""
    now = set(erased(world.settings)) - world.erased
    if wrong := [where for where in now if not names(world.topics[where], item)]:
        raise NotSurvivedError(f"{len(wrong)} erased messages are not of item {item}, such as {wrong[0]}")
    if left := [each for each in messages(world.settings) if names(each, item)]:
        raise NotSurvivedError(f"{len(left)} messages of item {item} are left, such as {left[0]}")
    world.erased |= now


def names(message: Message, item: int) -> bool:
    """Whether the item is the key of the message or, as text, an `id` or `itemId` in its payload."""
    field = {"items": b"id", "orders": b"itemId"}.get(message.topic, b"none")
    said = re.search(rb'"%s": ?%d\b(?!\.)' % (field, item), message.payload or b"")
    return bool(said) or (message.topic == "items" and message.key == str(item))
