"""What is really lost, and whether the product reports exactly that, before and after the loss is accepted."""

from pulsar_lakehouse.inspection.query import query
from tests.chaos.world import NotSurvivedError, World
from tests.lake import messages
from tests.oracle import Position


def lose(world: World, topic: str, *, forget: bool) -> None:
    """Let the broker delete the messages that nothing keeps any more, and note those that had not landed."""
    if forget:
        world.forget(topic)
        world.restore_topics()
    else:
        world.restore_topics()
    landed = {(message.topic, message.position) for message in messages(world.settings)}
    world.lost |= world.topics.keys() - world.read_topics() - landed - world.erased
    if not any(name == topic for name, _ in world.lost):
        raise NotSurvivedError(f"the fault should have lost messages of {topic}, but lost none")


def check_refused(world: World, topic: str) -> None:
    """Landing must stop, and its last line, `status` and `reconcile` must report the loss and how to continue."""
    way_on = f"`lakehouse land {topic} --accept-loss`"
    if way_on not in (line := world.refused()):
        raise NotSurvivedError(f"messages of {topic} are lost, and landing went on: {line or 'it runs'}")
    if "--accept-loss" not in "".join(world.command("status").text.split()):
        raise NotSurvivedError(f"messages of {topic} are lost, and status does not say so")
    asks = world.draw.random() < 0.4  # not each time, as it starts Spark
    if asks and way_on not in (line := world.command("reconcile", codes=(1,)).last_line):
        raise NotSurvivedError(f"messages of {topic} are lost, and reconcile does not say so: {line}")


def check_accepted(world: World, topic: str) -> None:
    """Accept the loss. What is then recorded as lost must be all that is lost, and nothing else."""
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
