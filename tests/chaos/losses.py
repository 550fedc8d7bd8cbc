"""What is really lost, and whether the product tells just that, before it goes on and after."""

from lakehouse.delta.query import query
from tests.chaos.world import NotSurvivedError, World
from tests.lake import messages
from tests.oracle import Position


def lose(world: World, topic: str, *, forget: bool) -> None:
    """Let the broker delete what nothing keeps any more, and note what of it had not landed."""
    if forget:
        world.forget(topic)
        world.restore_topics()
    else:
        world.restore_topics()
    landed = {(message.topic, message.position) for message in messages(world.settings)}
    world.lost |= world.topics.keys() - world.read_topics() - landed
    if not any(name == topic for name, _ in world.lost):
        raise NotSurvivedError(f"no message of {topic} was lost, as the fault was to")


def check_refused(world: World, topic: str) -> None:
    """Landing must not go on; and it is told what is lost, and how to go on."""
    way_on = f"`lakehouse land {topic} --accept-loss`"
    if way_on not in (line := world.refused()):
        raise NotSurvivedError(f"messages of {topic} are lost, and landing went on: {line or 'it runs'}")
    if "--accept-loss" not in "".join(world.command("status").text.split()):
        raise NotSurvivedError(f"messages of {topic} are lost, and status does not say so")
    asks = world.draw.random() < 0.4  # as each time costs a start of Spark
    if asks and way_on not in (line := world.command("reconcile", codes=(1,)).last_line):
        raise NotSurvivedError(f"messages of {topic} are lost, and reconcile does not say so: {line}")


def check_accepted(world: World, topic: str) -> None:
    """Once that is accepted, what is written down is what is lost: all of that, and nothing that is there."""
    world.command("land", topic, "--accept-loss")
    columns = "split_part(topic, '/', -1), partition, after_ledger_id, after_entry_id, ledger_id, entry_id"
    found = query(world.settings, f"SELECT {columns} FROM bronze.losses").fetchall()
    ranges = [(name, index, (after, entry), (last, end)) for name, index, after, entry, last, end in found]

    def is_told(topic: str, position: Position) -> bool:
        partition, place = position.partition, (position.ledger_id, position.entry_id)
        return any((topic, partition) == (name, index) and after < place <= last for name, index, after, last in ranges)

    untold = [where for where in world.lost if not is_told(*where)]
    if untold:
        raise NotSurvivedError(f"{len(untold)} messages are lost and not written down, such as {untold[0]}")
    wrong = [where for where in world.topics.keys() - world.lost if is_told(*where)]
    if wrong:
        raise NotSurvivedError(f"{len(wrong)} messages are written down as lost that are not, such as {wrong[0]}")
    world.await_agreement()
