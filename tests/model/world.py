"""What the model has: the broker, the tables and checkpoints, and the processes with what they hold."""

from typing import NamedTuple

A, B = WRITERS = ("A", "B")
ENGINE, MAINTAINER = "engine", "maintainer"
GONE = "a dead owner"
"""Who has started, or borrowed, what is left of a process that was killed."""
TABLE = {"land": "bronze", "enrich": "gold", "enrich --every": "gold"}
"""The table whose lease a command takes. That of gold is for the waiting facts, too."""
FAILED = "failed"


class Rules(NamedTuple):
    """What the product does so that it is correct. A planted bug breaks one of these."""

    lease_is_exclusive: bool = True
    """Who finds a lease taken does not write: `leases.leases._wait_for` raises BusyError."""
    own_jvm_inherits: bool = True
    """A JVM of one's own has the files of the lease: `inherited` of `engine.launch.launch`."""
    lent_jvm_holds: bool = True
    """A JVM that is lent has them in its queue: `engine.keeper.Jvm.hold`."""
    held_before_work: bool = True
    """The borrower waits until the engine says that they are there: `engine.borrowing._held`."""
    one_loan_at_a_time: bool = True
    """`engine.keeper.Keeper.lent`, which a second borrower finds locked."""
    dead_before_free: bool = True
    """The engine kills a JVM before it frees its leases: `engine.keeper.Jvm.end`."""
    unwell_is_killed: bool = True
    """A JVM that was not given back well is not lent again: `engine.keeper.Keeper._lend`."""
    given_back_clean: bool = True
    """A JVM in which something still runs is not given back well: `spark.session._is_left_clean`."""
    free_once_given_back: bool = True
    """The engine takes the files out of the queue: `engine.keeper.Jvm.release`."""
    death_is_noticed: bool = True
    """The end of the borrower's connection ends the loan: `receive` in `engine.keeper.Keeper._lend`."""
    stages_of_landing: tuple[str, ...] = ("offsets", "rows", "commits", "acknowledge")
    """`checkpoints.batches.next_batch`, then `acknowledge` in `bronze.small_backlogs._land`."""
    batch_is_named: bool = True
    """The commit names the stream and its batch: `tables.direct.append_batch`."""
    known_batch_is_left_out: bool = True
    """Delta's sink does not append a batch that the table names."""
    checkpoint_is_checked: bool = True
    """A checkpoint that does not fit its table is removed: `checkpoints.soundness.sound_checkpoint`."""
    table_is_checked: bool = True
    """Without Spark, only a table at the stream's last batch gets the next one: `small_backlogs._can_go_on`."""
    same_end_again: bool = True
    """A batch that has begun is done again up to the same end: Spark's `offsets`."""
    goes_on_after_rows: bool = True
    """Without a checkpoint, landing continues after the last row: `bronze.landing._starting_position`."""
    placed_are_left: bool = True
    """Facts that are placed are left where they are: `gold.enrichment.writes.placed_of`."""
    gold_before_wait_ends: bool = True
    """A fact comes to gold before it leaves the waiting ones: `gold.enrichment.writes.write_difference`."""
    state_is_newest: bool = True
    """Facts are joined with state at least as new as the changes that the batch has: `look_up` pins it in the batch."""
    done_after_rows: bool = True
    """A batch of enrichment is done after its writes: Spark's `commits`, after `foreachBatch`."""
    compaction_has_turn: bool = True
    """Who compacts a table that MERGEs write has the turn: `jobs.maintenance._compact`."""
    round_has_turn: bool = True
    """A round begins with the turn: `leases.leases.Lease.lent` waits for it."""
    old_files_stay_a_week: bool = True
    """Files are removed a week after they left the table: `jobs.maintenance._vacuum` with KEEP."""


class Bronze(NamedTuple):
    rows: tuple[int, ...] = ()
    """The messages, by their positions in the topic, in the order of commits."""
    stream: int = 0
    batch: int = -1
    """The last batch that the table's log names, of that stream."""


class Checkpoint(NamedTuple):
    """Of the stream that lands: the last batches in `offsets` and `commits`, and the ends of both."""

    stream: int
    planned: int = -1
    done: int = -1
    reached: int = 0
    target: int = 0


class Progress(NamedTuple):
    """The checkpoint of the stream that enriches: what of bronze and of state its batches have read."""

    rows: int = 0
    user: bool = False
    planned_rows: int = 0
    planned_user: bool = False
    is_open: bool = False
    """Whether a batch has begun, but not ended."""
    is_first: bool = True


class Batch(NamedTuple):
    """Of landing: what it appends, and what comes next."""

    stream: int
    number: int
    start: int
    end: int
    stage: str
    seen: int = -1
    """The last batch in the table when it was looked at."""


class Job(NamedTuple):
    """What Spark does for an enrichment."""

    does: str
    facts: tuple[int, ...] = ()
    generation: int = 0
    """Of gold's files, when the job began."""


class Writer(NamedTuple):
    """A process of `lakehouse land` or `lakehouse enrich`."""

    command: str = ""
    at: str = "off"
    holds: bool = False
    """Whether it has the files of its lease open."""
    batch: Batch | None = None
    todo: tuple[Job, ...] = ()
    is_well: bool = True


OFF = Writer()


class Jvm(NamedTuple):
    parent: str
    """Who has the other end of its standard input; empty if nobody has, so that it ends."""
    owner: str = ""
    holds: tuple[str, ...] = ()
    """The leases whose files it has, inherited or in its queue."""
    job: Batch | Job | str | None = None


class Keeper(NamedTuple):
    is_alive: bool = False
    borrower: str = ""
    stage: str = ""
    files: tuple[str, ...] = ()
    """The leases whose files it has open itself, or which are on their way to it."""


class World(NamedTuple):
    sent: int = 0
    """How many messages the topic has got."""
    acknowledged: int = 0
    """How many of them the broker may have deleted."""
    user: bool = False
    """Whether silver has the user whom message 0 names."""
    bronze: Bronze = Bronze()
    checkpoint: Checkpoint | None = None
    gold: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    progress: Progress | None = None
    generation: int = 0
    """How often gold was compacted."""
    old_files: str = ""
    """Those from before the compaction: left just now, left `long ago`, or `removed`."""
    turn: str = ""
    writers: tuple[Writer, Writer] = (Writer(), Writer())
    keeper: Keeper = Keeper()
    jvms: tuple[Jvm, ...] = ()
    reader: int = -1
    """The generation of gold's files that it is reading."""
    trouble: str = ""

    def writer(self, name: str) -> Writer:
        return self.writers[0 if name == A else 1]

    def holders(self, table: str) -> set[str]:
        """Whose processes have a lease."""
        found = {name for name in WRITERS if (own := self.writer(name)).holds and TABLE[own.command] == table}
        found.update(jvm.owner for jvm in self.jvms if table in jvm.holds)
        if table in self.keeper.files:
            found.add(self.keeper.borrower)
        return found

    def jvm_of(self, owner: str) -> Jvm | None:
        return next((jvm for jvm in self.jvms if jvm.owner == owner), None)
