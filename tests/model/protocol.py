"""The steps of the model. The docstring of each names the function of the product that does it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.explorer import Step
from tests.model.world import (
    ENGINE,
    FAILED,
    GONE,
    MAINTAINER,
    OFF,
    TABLE,
    WRITERS,
    A,
    Batch,
    Checkpoint,
    Job,
    Jvm,
    Keeper,
    Progress,
    Rules,
    World,
    Writer,
)

Steps = Iterator[Step[World]]


class Scope(NamedTuple):
    """How much there is in the world."""

    messages: int = 1
    writers: tuple[str, ...] = WRITERS
    commands: tuple[str, ...] = ("land", "enrich")
    has_engine: bool = True
    maintains: bool = False
    """Whether there are a maintainer and a reader."""
    loses: bool = False
    """Whether checkpoints get lost."""
    start: World = World()
    rules: Rules = Rules()

    def steps(self, world: World) -> Steps:
        """All that can happen next."""
        for step in self._steps(world):
            settled = _settled(step.after)
            yield step if settled is step.after else step._replace(after=settled)

    def _steps(self, world: World) -> Steps:
        yield from _outside(self, world)
        for name in self.writers:
            yield from _writer(self, world, name)
        for jvm in world.jvms:
            yield from _jvm(self, world, jvm)
        if self.has_engine:
            yield from _keeper(self, world)
        if self.maintains:
            yield from _maintainer(self, world)
            yield from _reader(world)
        if self.loses:
            yield from _losses(world)


def is_end(scope: Scope, world: World) -> bool:
    """All that was sent is in its table, and everybody has ended."""
    is_idle = not (world.keeper.borrower or world.trouble or world.turn or any(each.command for each in world.writers))
    is_free = not any(map(world.holders, set(TABLE.values()))) and world.reader < 0
    rows = world.gold if {*scope.commands} - {"land"} else world.bronze.rows
    return is_idle and is_free and world.user and rows == tuple(range(scope.messages)) and not world.waiting


def _settled(world: World) -> World:
    """What the kernel does: whoever has a turn loses it with its process, and an idle JVM ends with its input."""
    if any(not (each.parent or each.holds or each.job) for each in world.jvms):
        world = world._replace(jvms=tuple(each for each in world.jvms if each.parent or each.holds or each.job))
    if len(world.jvms) > 1:  # their order means nothing
        world = world._replace(jvms=tuple(sorted(world.jvms, key=repr)))
    if world.turn and world.turn != MAINTAINER and not world.holders("gold"):
        world = world._replace(turn="")
    return world


def _with(world: World, name: str, **changes: Any) -> World:
    return _writer_is(world, name, world.writer(name)._replace(**changes))


def _writer_is(world: World, name: str, writer: Writer) -> World:
    first, second = world.writers
    return world._replace(writers=(writer, second) if name == A else (first, writer))


def _instead(world: World, jvm: Jvm, by: Jvm | None) -> World:
    others = [each for each in world.jvms if each is not jvm]
    return world._replace(jvms=(*others, *([by] if by else [])))


def _outside(scope: Scope, world: World) -> Steps:
    """Messages and changes of state come."""
    if world.sent < scope.messages:
        yield Step("a message is sent", world._replace(sent=world.sent + 1))
    if not world.user:
        yield Step("the user comes", world._replace(user=True))


def _losses(world: World) -> Steps:
    """While no process writes, checkpoints get lost, or one of their files."""
    if (held := world.checkpoint) and not world.holders("bronze"):
        yield Step("the checkpoint of landing is lost", world._replace(checkpoint=None), is_fault=True)
        if held.planned > held.done:
            older = held._replace(planned=held.done, target=held.reached)
            yield Step("the last file of offsets is lost", world._replace(checkpoint=older), is_fault=True)
    if world.progress and not world.holders("gold"):
        yield Step("the checkpoint of enrichment is lost", world._replace(progress=None), is_fault=True)


# Writers: the processes of commands


def _writer(scope: Scope, world: World, name: str) -> Steps:
    own = world.writer(name)
    if own.at == "off":
        yield from _begin(scope, world, name)
        return
    yield Step(f"{name} is killed", _killed(world, name), is_fault=True)
    if own.at in ("turn", "lease", "asked", "sent", "stopping", "returned"):
        yield from ENDS[own.at](scope, world, name)
        return
    jvm = world.jvm_of(name)
    failed = jvm is None or jvm.job == FAILED
    if failed and own.at != "landing":
        yield Step(f"{name} fails", _leaving(world, name, is_well=False))
        return
    yield Step(f"{name} is interrupted", _leaving(world, name, is_well=False), is_fault=True)
    if own.at == "landing":
        yield from _land_directly(scope, world, name)
    elif jvm is not None and jvm.job is None:
        yield from WORK[own.at](scope, world, name, jvm)
    elif not scope.rules.given_back_clean:
        yield Step(f"{name} frees its lease", _leaving(world, name, is_well=True))


def _killed(world: World, name: str) -> World:
    """`kill -9`: the kernel closes its files, and its connection to the engine."""
    jvms = [each._replace(owner=GONE) if each.owner == name else each for each in world.jvms]
    jvms = [each._replace(parent="") if each.parent == name else each for each in jvms]
    keeper = world.keeper._replace(borrower=GONE) if world.keeper.borrower == name else world.keeper
    return _writer_is(world._replace(jvms=tuple(jvms), keeper=keeper), name, OFF)


def _is_new(world: World, command: str) -> bool:
    """`jobs.new_data.news`: whether there is something to do for a step."""
    if TABLE[command] == "bronze":
        has_begun = world.checkpoint is not None and world.checkpoint.planned > world.checkpoint.done
        return has_begun or world.sent > len(world.bronze.rows)
    rows, read = len(world.bronze.rows), world.progress
    return rows > 0 if read is None else read.is_open or (rows, world.user) != (read.rows, read.user)


def _begin(scope: Scope, world: World, name: str) -> Steps:
    """`leases.leases._locked` takes the lock of the table, or raises BusyError, and then there is nothing to see."""
    for command in scope.commands:
        table = TABLE[command]
        if _is_new(world, command) and not (scope.rules.lease_is_exclusive and world.holders(table)):
            at = "turn" if table == "gold" else "lease"
            yield Step(f"{name} takes the lease of {table}", _with(world, name, command=command, at=at, holds=True))


def _take_turn(scope: Scope, world: World, name: str) -> Steps:
    """`leases.leases._locked` waits for the turn, and then has both until its files are closed."""
    if not world.turn or not scope.rules.round_has_turn:
        at = "lease" if world.jvm_of(name) is None else "ready"
        yield Step(f"{name} takes the turn", _with(world._replace(turn=world.turn or name), name, at=at))


def _borrow_or_start(scope: Scope, world: World, name: str) -> Steps:
    """`spark.session.start_spark`: `_borrowed` if there is an engine whose JVM nobody has, or `_launched`."""
    own, keeper = world.writer(name), world.keeper
    is_free = not keeper.borrower or not scope.rules.one_loan_at_a_time
    if keeper.is_alive and is_free and own.command != "enrich --every":
        lent = world._replace(keeper=keeper._replace(borrower=name, stage="asked"))
        if not any(each.parent == ENGINE for each in world.jvms):
            lent = lent._replace(jvms=(*lent.jvms, Jvm(ENGINE)))
        yield Step(f"{name} asks the engine", _with(lent, name, at="asked"))
    else:
        yield _launch(scope, world, name)


def _launch(scope: Scope, world: World, name: str) -> Step[World]:
    """`spark.session._launched`: the JVM inherits the files of the lease."""
    table = TABLE[world.writer(name).command]
    jvm = Jvm(name, name, (table,) if scope.rules.own_jvm_inherits else ())
    return Step(f"{name} starts a JVM", _with(world._replace(jvms=(*world.jvms, jvm)), name, at="ready"))


def _send_files(scope: Scope, world: World, name: str) -> Steps:
    """`engine.borrowing._held` sends the files of the lease to the engine."""
    own, keeper = world.writer(name), world.keeper
    if keeper.borrower != name:
        yield _launch(scope, world, name)
        return
    sent = world._replace(keeper=keeper._replace(stage="sent", files=(TABLE[own.command],)))
    if scope.rules.held_before_work:
        yield Step(f"{name} sends its lease", _with(sent, name, at="sent"))
    else:
        jvms = (each._replace(owner=name) if each.parent == ENGINE else each for each in sent.jvms)
        yield Step(f"{name} sends its lease", _with(sent._replace(jvms=tuple(jvms)), name, at="ready"))


def _wait_until_held(scope: Scope, world: World, name: str) -> Steps:
    """`engine.borrowing._held` waits. If the engine ends meanwhile, the JVM is another one."""
    if world.keeper.borrower != name:
        yield _launch(scope, world, name)


def _leaving(world: World, name: str, *, is_well: bool) -> World:
    """The block of `leases.leases.write_lease` ends, so the files of the lease are closed here."""
    return _with(world, name, at="stopping", holds=False, batch=None, todo=(), is_well=is_well)


def _stop_spark(scope: Scope, world: World, name: str) -> Steps:
    """`spark.session.stop_spark`: a JVM of one's own is killed, and a borrowed one is given back, well or not."""
    own, keeper = world.writer(name), world.keeper
    jvm = world.jvm_of(name)
    if jvm is not None and jvm.parent == name:
        yield Step(f"{name} stops its JVM", _writer_is(_instead(world, jvm, None), name, OFF))
    elif keeper.borrower != name:
        yield from _wait_until_released(scope, world, name)
    else:
        returned = world._replace(keeper=keeper._replace(stage="well" if own.is_well else "unwell"))
        yield Step(f"{name} gives its JVM back", _with(returned, name, at="returned"))


def _wait_until_released(scope: Scope, world: World, name: str) -> Steps:
    """`engine.borrowing.Loan.give_back` waits for the engine. If that has ended, it kills the JVM."""
    if world.keeper.borrower != name:
        jvm = world.jvm_of(name)
        yield Step(f"{name} ends", _writer_is(_instead(world, jvm, None) if jvm else world, name, OFF))


ENDS: dict[str, Callable[[Scope, World, str], Steps]] = {
    "turn": _take_turn,
    "lease": _borrow_or_start,
    "asked": _send_files,
    "sent": _wait_until_held,
    "stopping": _stop_spark,
    "returned": _wait_until_released,
}


def _work(scope: Scope, world: World, name: str, jvm: Jvm) -> Steps:
    """The command begins a batch, lends its turn between two rounds (`leases.leases.Lease.lent`), or ends."""
    own = world.writer(name)
    if _is_new(world, own.command):
        if own.command == "land":
            yield from _begin_directly(scope, world, name)
            yield from _begin_stream(scope, world, name, jvm)
        else:
            yield Step(f"{name} starts its stream", _given(world, name, jvm, Job("plan"), at="planning"))
    elif own.command == "enrich --every":
        yield Step(f"{name} lends its turn", _with(world._replace(turn=""), name, at="turn"))
    yield Step(f"{name} frees its lease", _leaving(world, name, is_well=True))


def _given(world: World, name: str, jvm: Jvm, job: Batch | Job, **changes: Any) -> World:
    return _with(_instead(world, jvm, jvm._replace(job=job)), name, **changes)


# Landing


def _begin_directly(scope: Scope, world: World, name: str) -> Steps:
    """`bronze.small_backlogs._land` plans a batch, unless it leaves that to the stream (`_can_go_on`)."""
    held, bronze = world.checkpoint, world.bronze
    if held is None and not bronze.rows:
        held = Checkpoint(bronze.stream + 1)  # `checkpoints.batches.begin`
    elif held is None or held.planned < 0 or held.planned > held.done:
        return
    in_table = bronze.batch if bronze.stream == held.stream else -1
    if (in_table == held.done or not scope.rules.table_is_checked) and world.sent > held.reached:
        batch = Batch(held.stream, held.done + 1, held.reached, world.sent, scope.rules.stages_of_landing[0], in_table)
        begun = _read(world._replace(checkpoint=held), batch)
        yield Step(f"{name} plans a batch", _with(begun, name, at="landing", batch=batch))


def _begin_stream(scope: Scope, world: World, name: str, jvm: Jvm) -> Steps:
    """`bronze.landing.land` looks whether the checkpoint is sound, and Spark plans the batch that it says.

    Without a checkpoint, `_starting_position` is after the last row. A batch that has begun is done again.
    """
    rules, bronze, held = scope.rules, world.bronze, world.checkpoint
    in_table = bronze.batch if held and bronze.stream == held.stream else -1
    if held and rules.checkpoint_is_checked and not held.done <= in_table <= held.planned:
        held = None
    if held is None:
        start = len(bronze.rows) if rules.goes_on_after_rows else 0
        held = Checkpoint(bronze.stream + 1, reached=start, target=start)
    if held.planned > held.done:
        end = held.target if rules.same_end_again else world.sent
        batch = Batch(held.stream, held.planned, held.reached, end, _after("offsets", rules))
    elif world.sent > held.reached:
        batch = Batch(held.stream, held.done + 1, held.reached, world.sent, rules.stages_of_landing[0])
    else:
        return
    begun = _read(world._replace(checkpoint=held), batch)
    yield Step(f"{name} starts its stream", _given(begun, name, jvm, batch, at="streaming"))


def _read(world: World, batch: Batch) -> World:
    """The broker has what is read, unless it may have deleted it: `Plan.refuse_lost_data`."""
    return world._replace(trouble="lost") if batch.start < world.acknowledged else world


def _after(stage: str, rules: Rules) -> str:
    following = rules.stages_of_landing[rules.stages_of_landing.index(stage) + 1 :]
    return following[0] if following else ""


def _land(rules: Rules, world: World, batch: Batch, *, directly: bool) -> World | None:
    """A stage of a batch: by `checkpoints.batches.next_batch` and `append_batch`, or by Spark. None if it fails."""
    held, bronze = world.checkpoint, world.bronze
    if held is None or held.stream != batch.stream:
        return None
    match batch.stage:
        case "offsets":
            if held.planned >= batch.number:
                return None  # the file is there already
            return world._replace(checkpoint=held._replace(planned=batch.number, target=batch.end))
        case "rows":
            in_table = bronze.batch if bronze.stream == batch.stream else -1
            if directly and in_table != batch.seen:
                return None  # somebody has appended a batch since
            if not directly and in_table >= batch.number and rules.known_batch_is_left_out:
                return world
            is_named = rules.batch_is_named or not directly
            named = (batch.stream, batch.number) if is_named else (bronze.stream, bronze.batch)
            return world._replace(bronze=bronze.__class__((*bronze.rows, *range(batch.start, batch.end)), *named))
        case "commits":
            return world._replace(checkpoint=held._replace(done=batch.number, reached=batch.end))
        case _:
            return world._replace(acknowledged=max(world.acknowledged, batch.end))


def _done(name: str, batch: Batch, before: World, after: World, owner: str) -> Step[World]:
    if batch.stage == "rows":
        is_commit = after.bronze != before.bronze
        does = f"{name} {'commits to' if is_commit else 'leaves'} bronze"
        return Step(does, after, ("bronze", owner) if is_commit else None)
    return Step(f"{name} {'acknowledges' if batch.stage == 'acknowledge' else f'writes {batch.stage}'}", after)


def _land_directly(scope: Scope, world: World, name: str) -> Steps:
    batch = world.writer(name).batch
    assert batch
    if (landed := _land(scope.rules, world, batch, directly=True)) is None:
        yield Step(f"{name} fails", _leaving(world, name, is_well=False))
        return
    following = _after(batch.stage, scope.rules)
    on = {"batch": batch._replace(stage=following)} if following else {"batch": None, "at": "ready"}
    yield _done(name, batch, world, _with(landed, name, **on), name)


# Enrichment: each of these is one batch of its stream


def _look(scope: Scope, world: World, name: str, jvm: Jvm) -> Steps:
    """`gold.enrichment.stages.enrich_batch` looks up which facts are placed, joins the others, and says what to write.

    `placing.place_new` writes new facts, and `deciding.decide_again` those that wait for what has changed.
    """
    rules, read = scope.rules, world.progress
    assert read
    user = world.user if rules.state_is_newest else read.user
    placed = {*world.gold, *world.waiting} if rules.placed_are_left else set()
    new = [fact for fact in world.bronze.rows[read.rows : read.planned_rows] if fact not in placed]
    lacking = tuple(fact for fact in new if fact == 0 and not user)
    complete = tuple(fact for fact in new if fact not in lacking)
    todo = [Job("add", complete), Job("wait", lacking)]
    if (read.is_first or read.planned_user != read.user) and user:
        again = [Job("add", tuple(fact for fact in world.waiting if fact not in world.gold))]
        again.append(Job("end waiting", world.waiting))
        todo += again if rules.gold_before_wait_ends else reversed(again)
    jobs = tuple(job for job in todo if job.facts)
    jobs = (*jobs, Job("commits")) if rules.done_after_rows else (Job("commits"), *jobs)
    yield Step(f"{name} looks what is placed", _with(world, name, at="enriching", todo=jobs))


def _next_write(scope: Scope, world: World, name: str, jvm: Jvm) -> Steps:
    """`gold.enrichment.writes`: Spark does one write after the other, and then writes `commits`."""
    if todo := world.writer(name).todo:
        job = todo[0]._replace(generation=world.generation)
        yield Step(f"{name} lets Spark {job.does}", _given(world, name, jvm, job, todo=todo[1:]))
    else:
        yield Step(f"{name} has enriched", _with(world, name, at="ready"))


def _streamed(scope: Scope, world: World, name: str, jvm: Jvm) -> Steps:
    yield Step(f"{name} has landed", _with(world, name, at="ready"))


WORK: dict[str, Callable[[Scope, World, str, Jvm], Steps]] = {
    "ready": _work,
    "streaming": _streamed,
    "planning": _look,
    "enriching": _next_write,
}


def _enrich(world: World, job: Job) -> World | None:
    """What Spark does for an enrichment; None if it fails."""
    read = world.progress or Progress()
    match job.does:
        case "plan":
            if read.is_open:
                return world
            begun = read._replace(planned_rows=len(world.bronze.rows), planned_user=world.user, is_open=True)
            return world._replace(progress=begun)
        case "add":
            return world._replace(gold=tuple(sorted((*world.gold, *job.facts))))
        case "wait":
            return world._replace(waiting=tuple(sorted((*world.waiting, *job.facts))))
        case "end waiting":
            if world.generation != job.generation:
                return world._replace(trouble="conflict")
            return world._replace(waiting=tuple(fact for fact in world.waiting if fact not in job.facts))
        case _:
            return world._replace(progress=Progress(read.planned_rows, read.planned_user, is_first=False))


# JVMs


def _jvm(scope: Scope, world: World, jvm: Jvm) -> Steps:
    """Spark does what it was given, whether its owner lives or not. It lands what has come meanwhile, too."""
    name = f"{jvm.owner or 'nobody'}'s Spark"
    yield Step(f"{name} ends", _instead(world, jvm, None), is_fault=bool(jvm.parent))
    if isinstance(jvm.job, Batch):
        landed = _land(scope.rules, world, jvm.job, directly=False)
        if landed is None:
            yield Step(f"{name} fails", _instead(world, jvm, jvm._replace(job=FAILED)))
            return
        following = _after(jvm.job.stage, scope.rules)
        rest = jvm.job._replace(stage=following) if following else None
        yield _done(name, jvm.job, world, _instead(landed, jvm, jvm._replace(job=rest)), jvm.owner)
        if rest is None and world.sent > jvm.job.end:
            first = scope.rules.stages_of_landing[0]
            more = Batch(jvm.job.stream, jvm.job.number + 1, jvm.job.end, world.sent, first)
            yield Step(f"{name} goes on", _instead(landed, jvm, jvm._replace(job=more)))
    elif isinstance(jvm.job, Job):
        done = _enrich(world, jvm.job)
        assert done
        is_commit = jvm.job.does in ("add", "wait", "end waiting")
        is_again = jvm.job.does == "plan" and world.progress is not None and world.progress.is_open
        after = _instead(done, jvm, jvm._replace(job=None))
        does = f"{name} plans again" if is_again else f"{name} does {jvm.job.does}"
        yield Step(does, after, ("gold", jvm.owner) if is_commit else None)


# The engine's keeper, which lends its JVM


def _keeper(scope: Scope, world: World) -> Steps:
    """`engine.keeper.Keeper._lend`. If it ends, so does the JVM's input, and the queue is the JVM's alone."""
    keeper, rules = world.keeper, scope.rules
    if not keeper.is_alive:
        yield Step("the engine starts", world._replace(keeper=Keeper(is_alive=True)))
        return
    orphans = [each._replace(parent="") if each.parent == ENGINE else each for each in world.jvms]
    yield Step("the engine is killed", world._replace(keeper=Keeper(), jvms=tuple(orphans)), is_fault=True)
    jvm = next((each for each in world.jvms if each.parent == ENGINE), None)
    if keeper.stage == "sent":
        yield Step("the engine holds the lease", _hold(rules, world, jvm))
    if keeper.borrower == GONE and keeper.stage == "asked":
        yield Step("the engine sees that its borrower has gone", world._replace(keeper=Keeper(is_alive=True)))
    if keeper.borrower == GONE and keeper.stage == "held" and rules.death_is_noticed:
        gone = keeper._replace(stage="unwell")
        yield Step("the engine sees that its borrower has gone", world._replace(keeper=gone))
    if keeper.stage in ("well", "unwell") and keeper.files:
        yield Step("the engine closes its files", world._replace(keeper=keeper._replace(files=())))
    elif keeper.stage == "well" or (keeper.stage == "unwell" and not rules.unwell_is_killed):
        yield Step("the engine frees the lease", _free(rules, world, jvm)._replace(keeper=Keeper(is_alive=True)))
    elif keeper.stage == "unwell" and (rules.dead_before_free or jvm is None or not jvm.holds):
        killed = _instead(world, jvm, None) if jvm else world
        yield Step("the engine kills its JVM", killed._replace(keeper=Keeper(is_alive=True)))
    elif keeper.stage == "unwell" and jvm is not None:
        yield Step("the engine frees the lease", _instead(world, jvm, jvm._replace(holds=())))


def _hold(rules: Rules, world: World, jvm: Jvm | None) -> World:
    """`engine.keeper.Jvm.hold` puts the files into the queue, and the borrower is told."""
    keeper, borrower = world.keeper, world.keeper.borrower
    world = world._replace(keeper=keeper._replace(stage="held"))
    if jvm is not None:
        holds = tuple({*jvm.holds, *keeper.files}) if rules.lent_jvm_holds else ()
        world = _instead(world, jvm, jvm._replace(owner=borrower, holds=holds))
    return _with(world, borrower, at="ready") if borrower in WRITERS and world.writer(borrower).at == "sent" else world


def _free(rules: Rules, world: World, jvm: Jvm | None) -> World:
    """`engine.keeper.Jvm.release` takes the files out of the queue."""
    if jvm is None:
        return world
    holds = () if rules.free_once_given_back else jvm.holds
    return _instead(world, jvm, jvm._replace(owner="", holds=holds))


# Maintenance and readers


def _maintainer(scope: Scope, world: World) -> Steps:
    """`jobs.maintenance`: `_compact` with the turn (`leases.turns.turn_at`), and `_vacuum`, which needs none."""
    if world.turn == MAINTAINER:
        yield Step("the maintainer is killed", world._replace(turn=""), is_fault=True)
    if world.generation == 0 and not world.turn and scope.rules.compaction_has_turn:
        yield Step("the maintainer takes the turn", world._replace(turn=MAINTAINER))
    if world.generation == 0 and (world.turn == MAINTAINER or not scope.rules.compaction_has_turn):
        turn = "" if world.turn == MAINTAINER else world.turn
        yield Step("the maintainer compacts gold", world._replace(generation=1, old_files="left", turn=turn))
    if world.old_files == "left" and world.reader != 0:
        yield Step("a week passes", world._replace(old_files="long ago"))
    if world.old_files == "long ago" or (world.old_files == "left" and not scope.rules.old_files_stay_a_week):
        yield Step("the maintainer removes old files", world._replace(old_files="removed"))


def _reader(world: World) -> Steps:
    """`tables.lake.LakeTable.pin`, and then the files of that version are read."""
    if world.reader < 0:
        yield Step("the reader pins gold", world._replace(reader=world.generation))
    elif world.reader < world.generation and world.old_files == "removed":
        yield Step("the reader misses a file", world._replace(reader=-1, trouble="missing"))
    else:
        yield Step("the reader has read gold", world._replace(reader=-1))
