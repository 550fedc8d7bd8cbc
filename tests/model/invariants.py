"""What must hold of each state and of each commit, whoever is killed: the sentences of docs/model.md."""

from tests.model.explorer import Step
from tests.model.world import GONE, WRITERS, World


def nothing_is_there_twice(world: World) -> bool:
    """No message is in bronze twice, and no fact in gold or among the waiting ones."""
    return all(len(set(rows)) == len(rows) for rows in (world.bronze.rows, world.gold, world.waiting))


def nothing_is_left_out(world: World) -> bool:
    """Bronze has all messages up to the last one that it has."""
    return set(world.bronze.rows) == set(range(max(world.bronze.rows, default=-1) + 1))


def nothing_is_acknowledged_before_it_has_landed(world: World) -> bool:
    """What the broker may delete is in bronze."""
    return set(range(world.acknowledged)) <= set(world.bronze.rows) and world.trouble != "lost"


def offsets_are_never_ahead_of_rows(world: World) -> bool:
    """What a finished batch of landing has read is in bronze."""
    return world.checkpoint is None or set(range(world.checkpoint.reached)) <= set(world.bronze.rows)


def each_fact_is_somewhere(world: World) -> bool:
    """What a finished batch of enrichment has read is in gold or waits."""
    read = world.progress.rows if world.progress else 0
    return {*world.bronze.rows[:read]} <= {*world.gold, *world.waiting}


def a_spark_that_begins_is_idle(world: World) -> bool:
    """Nothing runs in a Spark that a command gets."""
    ready = [world.jvm_of(name) for name in WRITERS if world.writer(name).at == "ready"]
    return all(jvm is None or jvm.job is None or isinstance(jvm.job, str) for jvm in ready)


def maintenance_stops_no_batch(world: World) -> bool:
    """No MERGE fails because of a compaction."""
    return world.trouble != "conflict"


def a_reader_finds_its_files(world: World) -> bool:
    """The files of the version that a reader has pinned are there."""
    return world.trouble != "missing"


def who_commits_has_the_lease(before: World, step: Step[World]) -> bool:
    """Whoever commits to a table holds its lease, by its own files or by those of its Spark."""
    table, owner = step.commit or ("", "")
    return owner in before.holders(table)


def one_process_writes_a_table(before: World, step: Step[World]) -> bool:
    """While a command commits to a table, no other command has its lease."""
    table, owner = step.commit or ("", "")
    return owner == GONE or before.holders(table) <= {owner}


def a_dead_owners_spark_never_writes_after_a_successor(before: World, step: Step[World]) -> bool:
    """What is left of a killed command commits nothing once another command has the lease."""
    table, owner = step.commit or ("", "")
    return owner != GONE or before.holders(table) <= {GONE}


def rows_are_never_ahead_of_offsets(before: World, step: Step[World]) -> bool:
    """A batch that lands is in `offsets`, with its end, before its rows are in bronze."""
    held, landed = before.checkpoint, step.after.bronze.rows
    is_planned = held is not None and held.target == len(landed) and held.planned > held.done
    return landed == before.bronze.rows or is_planned


def gold_never_goes_back(before: World, step: Step[World]) -> bool:
    """What a reader has seen in gold, it sees again; and what waits is in gold before it waits no more."""
    stays = {*before.gold} <= {*step.after.gold}
    return stays and {*before.gold, *before.waiting} <= {*step.after.gold, *step.after.waiting}


ALWAYS = (
    nothing_is_there_twice,
    nothing_is_left_out,
    nothing_is_acknowledged_before_it_has_landed,
    offsets_are_never_ahead_of_rows,
    each_fact_is_somewhere,
    a_spark_that_begins_is_idle,
    maintenance_stops_no_batch,
    a_reader_finds_its_files,
)
EACH_COMMIT = (
    who_commits_has_the_lease,
    one_process_writes_a_table,
    a_dead_owners_spark_never_writes_after_a_successor,
    rows_are_never_ahead_of_offsets,
    gold_never_goes_back,
)
