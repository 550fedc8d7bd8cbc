"""Faults, each a function of the world that it strikes. After each of them, the tables must reach what is recomputed.

A fault itself sends messages before, during and after it strikes. Its caller restarts the product and compares.
"""

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pulsar
from deltalake import DeltaTable

from pulsar_lakehouse.engine import control
from pulsar_lakehouse.errors import BrokerError, QualityError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.snapshots import named
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.tables.stored import stored_table
from tests.chaos.erasures import check_erased, erased
from tests.chaos.losses import check_accepted, check_refused, lose
from tests.chaos.readers import TABLES, Reader, Readers, by_delta_rs
from tests.chaos.waves import Sent
from tests.chaos.world import BUSY, NotSurvivedError, World, ignoring_gone
from tests.hostile import CORPUS
from tests.oracle import Position
from tests.published import gold, seen, sent
from tests.shop import ENRICHMENTS

Fault = Callable[[World], None]

STREAMS = ("bronze.users", "bronze.items", "bronze.orders", "silver.users", "silver.items", "gold.enriched_orders")
"""Streams, each with a checkpoint, by the table that they write."""
DERIVED = (
    "silver.users",
    "silver.items",
    "silver.users_history",
    "silver.items_history",
    "gold.enriched_orders",
    "quarantine.waiting_orders",
    "quarantine.duplicate_orders",
    "quarantine.malformed",
)
"""Tables that can be rebuilt from others."""
MOST_PARTITIONS = 6
GOLD = ENRICHMENTS[0].gold_table
REVENUE = "SELECT category, window_start, orders, revenue FROM gold.revenue_by_hour"
REVENUE_OF_GOLD = f"""SELECT coalesce(item.category, 'none'), date_trunc('hour', created_at), count(*),
    sum(try_cast(price AS DECIMAL(18, 2))) FROM {GOLD} GROUP BY 1, 2"""


# Processes that are killed


def driver_killed(world: World) -> None:
    """`kill -9` of the driver's Python process, somewhere in a batch."""
    _hit_while_busy(world, lambda: [world.driver()])


def jvm_killed(world: World) -> None:
    _hit_while_busy(world, lambda: [world.jvm()])


def worker_killed(world: World) -> None:
    """`kill -9` of one of the Python processes that Spark starts to land, as it does once a checkpoint is lost."""
    world.stop()
    shutil.rmtree(world.settings.checkpoint_path("bronze.orders"))
    world.send()
    world.run()
    _kill([world.draw.choice(world.wait_for(world.workers))])
    world.send(0.3)


def broker_killed(world: World) -> None:
    _hit_while_busy(world, world.broker_processes)
    _pause(world, 4)
    world.start_broker()
    world.send(0.3)


def broker_killed_while_it_is_sent_to(world: World) -> None:
    """Messages that the broker has not acknowledged may or may not be in their topics."""

    def kill_and_start() -> None:
        time.sleep(delay)
        _kill(processes)
        broker.start(world.settings)

    delay, processes = world.draw.uniform(0, 0.5), world.broker_processes()
    killer = threading.Thread(target=kill_and_start)
    killer.start()
    with suppress(BrokerError, pulsar.PulsarException):  # what the client raises when the broker is gone
        for _ in range(4):
            world.send()
    killer.join()
    world.send(0.3)


def all_killed(world: World) -> None:
    """Kill driver, JVM, Python processes and broker at once, like a power cut."""
    world.send(0.5)
    _pause(world, 2)
    world.kill()
    _kill(world.broker_processes())
    world.start_broker()
    world.send(0.5)


def asked_to_end(world: World) -> None:
    """Stop the product as Ctrl-C, a service manager or a closed terminal does."""
    world.send(0.7)
    _pause(world, 2)
    world.stop(world.draw.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
    world.send(0.3)


def killed_again_and_again(world: World) -> None:
    """Kill it three times, each time a little later in its start."""
    world.send()
    for at in range(3):
        world.run()
        time.sleep(3 + 4 * at + world.draw.uniform(0, 2))
        world.kill()


# Processes that are suspended


def driver_frozen(world: World) -> None:
    with _frozen(world, [world.driver()]):
        world.send()


def jvm_frozen(world: World) -> None:
    with _frozen(world, [world.jvm()]):
        world.send()


def broker_frozen(world: World) -> None:
    world.driver()
    with _frozen(world, world.broker_processes()):
        world.send()


# A command that has borrowed the Spark of the engine, while another one takes over


def borrower_killed(world: World) -> None:
    with _lent(world) as (owner, _):
        _kill([owner])


def engine_killed(world: World) -> None:
    with _lent(world) as (owner, engine):
        _kill([engine])
        owner.wait(60)


def borrower_and_engine_killed(world: World) -> None:
    with _lent(world) as (owner, engine):
        _kill(world.draw.sample([owner, engine], 2))


def borrower_killed_while_the_engine_is_frozen(world: World) -> None:
    """Its Spark goes on for a while, so whoever takes over must wait."""
    with _lent(world) as (owner, engine):
        engine.suspend()
        is_working = owner.status() != psutil.STATUS_ZOMBIE
        _kill([owner])
        world.command("run", codes=(BUSY,) if is_working else (0, BUSY))
        engine.resume()


@contextmanager
def _lent(world: World) -> Iterator[tuple[psutil.Process, psutil.Process]]:
    """A run that has borrowed Spark, and the engine, somewhere in the run. After the block, another run takes over."""
    world.stop()
    if control.state(world.settings) is None:
        world.command("engine", "up")
    world.send()
    with world.begun("run") as owner:
        found = world.wait_for(lambda: _engine(world, owner))
        _pause(world, 15)
        yield owner, psutil.Process(found["pid"])
        world.run()
        world.send(0.3)


def _engine(world: World, owner: psutil.Process) -> dict[str, Any] | None:
    """What the engine says of itself, once it has lent its Spark for the owner, which may also have ended."""
    found = control.state(world.settings)
    is_lent = found is not None and found["borrower"] is not None
    return found if is_lent or owner.status() == psutil.STATUS_ZOMBIE else None


# Checkpoint files that a power cut has damaged


def checkpoint_file_torn(world: World) -> None:
    """Leave 0 bytes, half, or garbage of `metadata`, or of the last file of offsets or commits."""
    file = _checkpoint_file(world)
    whole = file.read_bytes()
    file.write_bytes(world.draw.choice((b"", whole[: len(whole) // 2], b"\0" * len(whole), b"\xff\x00garbage")))
    if world.draw.random() < 0.7:
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def checkpoint_file_lost(world: World) -> None:
    _checkpoint_file(world).unlink()


def checkpoint_lost(world: World) -> None:
    """Lose the checkpoint of one stream, or of all."""
    _cut_power(world)
    chosen = world.draw.choice((*STREAMS, ""))
    shutil.rmtree(Path(world.settings.checkpoint_root, chosen), ignore_errors=True)


def checkpoint_of_yesterday(world: World) -> None:
    """Restore a checkpoint, or all, from a copy that is older than the tables."""
    world.stop()
    root = Path(world.settings.checkpoint_root)
    copy = world.settings.home / "checkpoints.copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    world.send()
    world.await_agreement()
    _cut_power(world)
    chosen = world.draw.choice((*STREAMS, ""))
    shutil.rmtree(root / chosen)
    shutil.move(copy / chosen, root / chosen)


# Table files


def table_lost(world: World) -> None:
    """Lose a table that can be rebuilt from others."""
    _cut_power(world)
    shutil.rmtree(world.settings.table_path(world.draw.choice(DERIVED)))


def table_half_made(world: World) -> None:
    """Leave a table whose creation was cut off: a `_delta_log` without a commit, or with a torn one."""
    _cut_power(world)
    log = Path(world.settings.table_path(world.draw.choice(DERIVED)), "_delta_log")
    shutil.rmtree(log.parent)
    log.mkdir(parents=True)
    if world.draw.random() < 0.5:
        (log / f"{0:020}.json").write_bytes(world.draw.choice((b"", b'{"commitInfo":{"timest')))


def orphan_files(world: World) -> None:
    """Leave what a killed writer leaves: data files without a commit, empty files, drafts of commits."""
    world.send(0.5)
    for name in [*world.draw.sample(DERIVED, 3), "bronze.orders"]:
        table = Path(world.settings.table_path(name))
        rows = [path for path in table.rglob("*.parquet") if "_delta_log" not in path.parts]
        if rows:
            chosen = world.draw.choice(rows)
            shutil.copy(chosen, chosen.with_name(f"part-00000-{world.draw.randrange(10**9)}.snappy.parquet"))
        (table / "part-00001-empty.snappy.parquet").touch()
        (table / f".part-{world.draw.randrange(10**9)}.tmp").write_bytes(b"half")
        (table / "_delta_log" / f".{DeltaTable(table).version() + 1:020}.json.{os.getpid()}.tmp").write_bytes(b'{"add')
    world.send(0.5)


def hints_of_a_log_torn(world: World) -> None:
    """Tear `_last_checkpoint` and the checksums of a table's log. They only save time."""
    _cut_power(world)
    for name in (*DERIVED, "bronze.orders"):
        log = Path(world.settings.table_path(name), "_delta_log")
        for file in (log / "_last_checkpoint", *sorted(log.glob("*.crc"))[-2:]):
            if file.exists():
                file.write_bytes(world.draw.choice((b"", file.read_bytes()[:20])))


def last_commit_torn(world: World) -> None:
    """Empty the last commit, as if the disk had not written it.

    The product must name the file in its last line. Then the fault does what docs/operations.md tells the operator.
    """
    _cut_power(world)
    log = Path(world.settings.table_path(world.draw.choice((*DERIVED, "bronze.orders"))), "_delta_log")
    last = max(log.glob("[0-9]*.json"))
    last.write_bytes(b"")
    if str(last) not in (line := world.refused()):
        raise NotSurvivedError(f"{last} is torn, but the last line does not name it: {line}")
    world.stop()
    for file in log.glob(f"*{last.stem}*"):  # and its checksum
        file.unlink()
    shutil.rmtree(world.settings.checkpoint_root)


def disk_full(world: World) -> None:
    """Leave no room for tables and checkpoints for some seconds while messages arrive."""
    disk = Path(world.settings.warehouse_root).parent
    filler = disk / "filler"
    left = shutil.disk_usage(disk).free - world.draw.choice((0, 8_192, 200_000))
    try:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(left, 1))
        world.send()
        until = time.monotonic() + world.draw.uniform(5, 12)
        while time.monotonic() < until:
            world.tend()
            time.sleep(0.5)
    finally:
        filler.unlink()


# Other commands


def second_writer(world: World) -> None:
    world.jvm()  # the run takes its leases before its JVM starts
    world.send(0.5)
    ended = world.command("run", codes=(BUSY,))
    if "is being written by pid" not in ended.last_line:
        raise NotSurvivedError(f"the last line does not name the writer: {ended.text}")
    world.send(0.5)


def steps_of_others(world: World) -> None:
    """Run commands that write tables which another process is writing: each ends with exit code 75."""
    world.jvm()
    world.send(0.5)
    steps = (["land"], ["merge", "users"], ["enrich"], ["rebuild", "silver.users", "--approve"])
    for words in world.draw.sample(steps, 2):
        world.command(*words, codes=(BUSY,))
    world.send(0.5)


def checked_while_it_runs(world: World) -> None:
    """Reconcile, validate or purge between two rounds. Such messages may break rules; the tables stay as they are."""
    world.jvm()
    world.send(0.5)
    command, also = world.draw.choice((("reconcile", 0), ("validate", QualityError.exit_code), ("purge", 0)))
    world.command(command, codes=(0, also))
    world.send(0.5)


def step_killed(world: World) -> None:
    """Kill a step in a process of its own, which is what a task of Airflow starts. Then go on without it."""
    world.stop()
    world.send()
    step = world.draw.choice((["land"], ["merge"], ["enrich"], ["run"]))
    world.kill_command(*step, once=lambda: True, within=15)
    world.send(0.3)


def published_and_killed(world: World) -> None:
    """Kill `lakehouse publish` midway, and publish again: a consumer sees gold.

    If gold was made again since, its topic is deleted first, as docs/backfill.md says.
    """
    topic, gold_id = "enriched_orders", str(stored_table(world.settings, GOLD).metadata().id)
    if world.published not in ("", gold_id):
        world.admin("DELETE", f"{topic}/partitions?force=true")
    world.published = gold_id
    create_published([topic], world.endpoint, world.settings)
    world.send()
    world.kill_command("publish", once=lambda: True, within=15)
    world.await_agreement()
    world.command("publish")
    if seen(sent(world.settings, world.endpoint, topic)) != gold(world.settings):
        raise NotSurvivedError("a consumer of the published topic does not see gold")


def refreshed_and_killed(world: World) -> None:
    """Kill `lakehouse refresh` midway, and refresh again: the revenue is that of gold."""
    world.send()
    world.kill_command("refresh", "revenue_by_hour", once=lambda: True, within=15)
    world.await_agreement()
    world.command("refresh", "revenue_by_hour")
    held, should = (Counter(query(world.settings, sql).fetchall()) for sql in (REVENUE, REVENUE_OF_GOLD))
    if held != should:
        raise NotSurvivedError(f"gold.revenue_by_hour has {held - should}, but should have {should - held}")


def killed_beside_the_endpoint(world: World) -> None:
    """Kill the product while the SQL endpoint is asked, and then the endpoint."""
    world.run()
    with world.served() as read:
        readers = Readers(world.settings, [Reader("the SQL endpoint", read, pause=1)])
        readers.start()
        try:
            world.send()
            _pause(world, 3)
            world.kill()
            world.send(0.5)
            world.await_agreement()
            world.wait_for(lambda: readers.readers[0].readings + len(readers.readers[0].failures) > 1)
        finally:
            readers.stop()
        readers.judge(gone=world.gone)
        if (held := read()) != by_delta_rs(world.settings)():
            raise NotSurvivedError(f"the SQL endpoint shows other rows: {[len(rows) for rows in held.values()]}")


def maintained_while_it_runs(world: World) -> None:
    world.send(0.5)
    world.command("maintain")
    world.send(0.5)


def maintained_while_stopped(world: World) -> None:
    """Remove old files, as if a week had passed, and compact small ones."""
    world.stop()
    old = time.time() - 8 * 86_400
    for path in Path(world.settings.warehouse_root).rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))
    world.command("maintain")
    world.send()


def backfilled(world: World) -> None:
    """Backfill some days, or the orders of a user, while the product runs."""
    world.send(0.5)
    key = f"users:{world.draw.randrange(20)}"
    scope = world.draw.choice((["--from", "2026-01-01", "--to", "2026-01-04"], ["--because", key]))
    world.command("backfill", *scope)
    world.send(0.5)


def rebuilt(world: World) -> None:
    """Make state or gold again from bronze, which no run may write meanwhile."""
    world.send(0.5)
    world.stop()
    world.command("rebuild", world.draw.choice(("silver.items", GOLD)), "--approve")
    world.send(0.5)


def released(world: World) -> None:
    """Release all waiting orders, so that they are retried."""
    world.send(0.5)
    world.command("quarantine", "release", "--all")
    world.send(0.5)


def snapshot_taken(world: World) -> None:
    """Take a snapshot while the product runs, and drop it, with changes before, between and after."""
    world.send(0.5)
    name = _snapshot(world)
    _check_snapshot(world, name)
    world.send(0.5)
    world.command("snapshot", "drop", name)
    world.send(0.5)


def restored_and_killed(world: World) -> None:
    """Kill a restore midway. Then restore again, or leave the rest to the next run."""
    name = _snapshot(world)
    world.send()
    world.await_agreement()
    world.stop()
    began = Path(world.settings.checkpoint_path(GOLD))
    world.kill_command("snapshot", "restore", name, once=lambda: not began.exists(), within=8)
    if world.draw.random() < 0.5:
        world.command("snapshot", "restore", name)
    world.send(0.5)
    world.await_agreement()
    world.command("snapshot", "drop", name)


def forgotten_and_killed(world: World) -> None:
    """Kill the erasure of an item midway, then complete it, with its older versions or without."""
    world.send()
    world.await_agreement()
    world.stop()
    item = world.draw.randrange(10)
    words = ("forget", f"items:{item}", "--approve", *world.draw.choice(((), ("--now",))))
    before = set(erased(world.settings))
    world.kill_command(*words, once=lambda: set(erased(world.settings)) != before, within=20)
    world.command(*words)
    check_erased(world, item)
    world.send(0.5)


# Topics


def partitions_added(world: World) -> None:
    topic = min(("users", "items", "orders"), key=lambda name: len(world.partitions(name)))
    count = len(world.partitions(topic))
    world.send(0.5)
    if count < MOST_PARTITIONS:
        world.admin("POST", f"{topic}/partitions", count + 1, accept=(412,))
        world.added[topic] = count + 1
    world.send(0.5)


def topics_unloaded(world: World) -> None:
    for topic in ("users", "items", "orders"):
        world.send(0.3)
        world.admin("PUT", f"{topic}/unload")


def subscription_deleted_while_it_runs(world: World) -> None:
    world.send(0.5)
    _delete_subscription(world, world.draw.choice(("users", "items", "orders")))
    world.send(0.5)


def subscription_deleted_while_stopped(world: World) -> None:
    world.stop()
    topic = world.draw.choice(("users", "items", "orders"))
    world.send(0.5)
    _delete_subscription(world, topic)
    world.send(0.5)


def backlog_skipped_but_there(world: World) -> None:
    """Move the subscription ahead while the broker still has the messages: they land."""
    world.stop()
    world.send()
    for topic in world.draw.sample(("users", "items", "orders"), 2):
        world.draw.choice((_skip_all, _reset_ahead, _expire))(world, topic)
    world.send(0.3)


def retention_cut(world: World) -> None:
    """Let the broker delete all landed messages of a topic, even of a changelog."""
    world.await_agreement()
    world.forget(world.draw.choice(("users", "items", "orders")))
    world.send(0.5)
    world.restore_topics()
    world.send(0.5)


def poison(world: World) -> None:
    """Send 60 of the hostile messages."""
    bad = [each for each in CORPUS if each.topic == "items" or each.malformed]  # sound orders all have the same key
    world.send_all(
        Sent(each.topic, each.key, each.payload, each.event_time, each.properties)
        for each in world.draw.sample(bad, 60)
    )


# Messages that an administrator removes before they have landed


def backlog_skipped_and_gone(world: World) -> None:
    _take_away(world, lambda topic: world.draw.choice((_skip_all, _reset_ahead, _expire))(world, topic))


def subscription_deleted_and_gone(world: World) -> None:
    _take_away(world, partial(_delete_subscription, world))


def topic_recreated_while_stopped(world: World) -> None:
    """Delete a topic, with messages that had not landed, and create it again."""
    _take_away(world, partial(_delete_topic, world), forget=False)


def topic_recreated_while_it_runs(world: World) -> None:
    world.await_agreement()
    topic = world.draw.choice(("users", "items", "orders"))
    _delete_topic(world, topic)
    world.restore_topics()
    check_refused(world, topic)
    check_accepted(world, topic)
    world.send()


FAULTS: tuple[Fault, ...] = (
    driver_killed,
    jvm_killed,
    worker_killed,
    broker_killed,
    broker_killed_while_it_is_sent_to,
    all_killed,
    asked_to_end,
    killed_again_and_again,
    driver_frozen,
    jvm_frozen,
    broker_frozen,
    borrower_killed,
    engine_killed,
    borrower_and_engine_killed,
    borrower_killed_while_the_engine_is_frozen,
    checkpoint_file_torn,
    checkpoint_file_lost,
    checkpoint_lost,
    checkpoint_of_yesterday,
    table_lost,
    table_half_made,
    orphan_files,
    hints_of_a_log_torn,
    last_commit_torn,
    disk_full,
    second_writer,
    steps_of_others,
    checked_while_it_runs,
    step_killed,
    published_and_killed,
    refreshed_and_killed,
    killed_beside_the_endpoint,
    maintained_while_it_runs,
    maintained_while_stopped,
    backfilled,
    rebuilt,
    released,
    snapshot_taken,
    restored_and_killed,
    forgotten_and_killed,
    partitions_added,
    topics_unloaded,
    subscription_deleted_while_it_runs,
    subscription_deleted_while_stopped,
    backlog_skipped_but_there,
    retention_cut,
    poison,
    backlog_skipped_and_gone,
    subscription_deleted_and_gone,
    topic_recreated_while_stopped,
    topic_recreated_while_it_runs,
)


DAMAGING = (
    table_lost,
    table_half_made,
    last_commit_torn,
    maintained_while_stopped,
    restored_and_killed,
    forgotten_and_killed,
)
"""Faults that damage tables, or take away their history: what readers see meanwhile is not judged."""


def drawn(draw: random.Random) -> Iterator[Fault]:
    """All faults in random order, then all in another order, and so on."""
    while True:
        yield from draw.sample(FAULTS, len(FAULTS))


def _pause(world: World, at_most: float) -> None:
    time.sleep(world.draw.uniform(0, at_most))


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with ignoring_gone():
            process.kill()
    psutil.wait_procs(processes, 30)


def _hit_while_busy(world: World, victims: Callable[[], list[psutil.Process]]) -> None:
    chosen = victims()
    world.send(0.7)
    _pause(world, 3)
    _kill([each for each in chosen if each.is_running()])
    if broker.running(world.settings):
        world.send(0.3)


def _snapshot(world: World) -> str:
    name = f"at-{time.monotonic_ns()}"
    world.command("snapshot", "create", name)
    return name


def _check_snapshot(world: World, name: str) -> None:
    """In a snapshot, which is taken between two rounds, each order that had landed is in exactly one table."""
    versions = {table: kept.version for table, kept in named(world.settings, name).tables.items()}

    def positions(table: str, *columns: str) -> Counter[Position]:
        rows = stored_table(world.settings, table, versions[table]).to_pyarrow_table(columns=list(columns)).to_pylist()
        return Counter(Position(**row.get("position", row)) for row in rows if row.pop("topic", "orders") == "orders")

    placed = sum((positions(table, "position") for table in TABLES if table in versions), Counter[Position]())
    if "quarantine.malformed" in versions:
        placed += positions("quarantine.malformed", "topic", "position")
    if (landed := positions("bronze.orders", *Position._fields)) != placed:
        raise NotSurvivedError(f"{name} has orders in no table, {landed - placed}, or in two, {placed - landed}")


@contextmanager
def _frozen(world: World, processes: list[psutil.Process]) -> Iterator[None]:
    """Suspend the processes for some seconds, in which the block begins."""

    def thaw() -> None:
        for process in processes:
            with ignoring_gone():
                process.resume()

    thawing = threading.Timer(world.draw.uniform(3, 9), thaw)
    for process in processes:
        process.suspend()
    thawing.start()
    try:
        yield
    finally:
        thawing.join()


def _cut_power(world: World) -> None:
    world.run()
    world.send(0.5)
    _pause(world, 3)
    world.kill()
    world.send(0.5)


def _checkpoint_file(world: World) -> Path:
    """A checkpoint file that a stream needs to continue. Cuts the power first."""
    _cut_power(world)
    checkpoint = Path(world.settings.checkpoint_path(world.draw.choice(STREAMS)))
    logs = [max(checkpoint.glob(f"{log}/[0-9]*"), key=lambda path: int(path.name)) for log in ("offsets", "commits")]
    return world.draw.choice([checkpoint / "metadata", *logs])


def _of_each_partition(world: World, topic: str, method: str, path: str, body: object = None) -> None:
    for partition in world.partitions(topic):
        world.admin(method, f"{partition}/subscription/{world.subscription(topic)}{path}", body)


def _delete_subscription(world: World, topic: str) -> None:
    _of_each_partition(world, topic, "DELETE", "?force=true")


def _skip_all(world: World, topic: str) -> None:
    _of_each_partition(world, topic, "POST", "/skip_all")


def _reset_ahead(world: World, topic: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    _of_each_partition(world, topic, "POST", f"/resetcursor/{round(later.timestamp() * 1000)}")


def _expire(world: World, topic: str) -> None:
    time.sleep(2.5)
    _of_each_partition(world, topic, "POST", "/expireMessages/1")


def _delete_topic(world: World, topic: str) -> None:
    world.admin("DELETE", f"{topic}/partitions?force=true")


def _take_away(world: World, act: Callable[[str], Any], *, forget: bool = True) -> None:
    """Send messages while the product is suspended or stopped, remove those of one topic, and check that it says so."""
    world.await_agreement()
    frozen = world.family() if world.draw.random() < 0.5 else []
    for process in frozen:
        process.suspend()
    if not frozen:
        world.stop()
    topic = world.draw.choice(("users", "items", "orders", "orders"))
    world.send()
    act(topic)
    lose(world, topic, forget=forget)
    if world.draw.random() < 0.5:
        world.send(0.5)
    for process in frozen:
        process.resume()
    check_refused(world, topic)
    check_accepted(world, topic)
    world.send(0.5)
