"""`make chaos`: faults and hostile messages against the product. After each fault, the tables are recomputed."""

import random
import re
import shutil
import signal
import subprocess
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pulsar_lakehouse.local import broker
from pulsar_lakehouse.settings import Settings, load_settings
from tests.chaos.faults import DAMAGING, Fault, disk_full, drawn
from tests.chaos.hostility import send_hostile_messages
from tests.chaos.world import NotSurvivedError, World

CONSOLE = Console(highlight=False)
RECONCILED = 10
"""The product's own reconciliation runs each time that so many faults have happened."""
DISK = "192m"
"""Size of the disk for tables and checkpoints, if this user may mount one. One of the faults fills it."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    number: int
    fault: str
    seconds: float
    starts: int
    """How often the product had to be restarted."""
    lost: int
    """Messages that an administrator removed. The product has reported them all."""
    failure: str = ""


def chaos(
    seed: Annotated[int, typer.Option(help="The same seed gives the same faults and messages.")] = 1,
    faults: Annotated[int, typer.Option(min=0, help="How many faults.")] = 200,
    only: Annotated[str, typer.Option(help="Only faults whose name contains this regular expression.")] = "",
    hostile: Annotated[int, typer.Option(min=0, help="How many hostile messages are sent afterwards.")] = 100_000,
) -> None:
    """Strike the running product with faults, and check the tables against the topics after each."""
    # A shell makes its background processes ignore Ctrl-C, and the processes started here would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outcomes: list[Outcome] = []
    draw = random.Random(seed)
    home = load_settings().home / "chaos"
    disk = home / "disk"
    named = (fault for fault in drawn(draw) if re.search(only, fault.__name__))
    chosen = islice((fault for fault in named if fault is not disk_full or disk.is_mount()), faults)
    world = begin(home, draw) if faults else None
    started = time.monotonic()
    try:
        for number, fault in enumerate(chosen, 1):
            if world is None:
                world = begin(home, draw)
            outcome = suffer(world, fault, number)
            outcomes.append(outcome)
            told = f"{number:>4} {outcome.fault:<36} {outcome.seconds:6.1f} s  {outcome.failure or 'survived'}"
            CONSOLE.print(told, style="red" if outcome.failure else "", markup=False, soft_wrap=True)
            for line in world.told:
                CONSOLE.print(f"     {line}", style="dim", markup=False, soft_wrap=True)
            world.told.clear()
            (home.parent / "chaos.md").write_text(as_markdown(outcomes, seed))
            if outcome.failure:
                end(world, keep=home.with_name(f"chaos-failed-{seed}-{number}"))
                world = None
    finally:
        if world is not None:
            end(world)
    if outcomes:
        CONSOLE.print(as_table(outcomes, f"{len(outcomes)} faults in {(time.monotonic() - started) / 60:.0f} minutes"))
    if hostile:
        send_hostile(hostile, seed, home)
    raise typer.Exit(any(outcome.failure for outcome in outcomes))


def send_hostile(count: int, seed: int, home: Path) -> None:
    """Send a tenth of the messages first, then all of them: the time per message must not grow."""
    settings = Settings(home=home)
    endpoint = broker.start(settings)
    try:
        few = send_hostile_messages(count // 10, seed, home / "few", endpoint)
        many = send_hostile_messages(count, seed, home / "many", endpoint)
    finally:
        broker.stop(settings)
        shutil.rmtree(home, ignore_errors=True)
    rates = f"{count / 10 / few:,.0f} a second of {count // 10:,}, {count / many:,.0f} of {count:,}"
    CONSOLE.print(f"{count:,} hostile messages are where they belong, for true reasons: {rates}")
    if many > 10 * few:
        raise NotSurvivedError(f"time grows faster than messages: {rates}")


def begin(home: Path, draw: random.Random) -> World:
    """A running product on a disk of its own, with some messages in its tables."""
    disk = home / "disk"
    if disk.is_mount():  # left by a run that was killed
        subprocess.run(["umount", "--lazy", disk], check=True)
    shutil.rmtree(home, ignore_errors=True)
    disk.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "chaos", disk], capture_output=True)
    if mounted.returncode != 0:
        CONSOLE.print("No disk of our own can be mounted, so none is filled: disk_full is left out")
    settings = Settings(home=home, warehouse=str(disk / "warehouse"), checkpoints=str(disk / "checkpoints"))
    world = World(settings, draw)
    try:
        world.start_broker()
        world.send()
        world.command("run")  # one that ends well leaves an archive of classes, with which others start sooner
        world.command("engine", "up")
        world.run()
        world.await_agreement()
        world.readers.start()
    except BaseException:
        end(world)
        raise
    return world


def end(world: World, *, keep: Path | None = None) -> None:
    world.close()
    home = world.settings.home
    if keep is not None:
        shutil.rmtree(keep, ignore_errors=True)
        shutil.copytree(home, keep, ignore=shutil.ignore_patterns("filler", "spark", "engine"))
    subprocess.run(["umount", "--lazy", home / "disk"], capture_output=True, check=False)
    shutil.rmtree(home, ignore_errors=True)


def suffer(world: World, fault: Fault, number: int) -> Outcome:
    """Let a fault strike, and wait until the tables are what is recomputed."""
    started, starts, lost = time.monotonic(), world.starts, len(world.lost)
    failure = ""
    try:
        fault(world)
        world.await_agreement()
        if fault in DAMAGING:
            world.readers.forget()
        else:
            world.readers.judge(gone=world.gone)
        if number % RECONCILED == 0:
            world.reconcile()
            world.await_agreement()
    except Exception as error:
        failure = str(error) or type(error).__name__
        CONSOLE.print(traceback.format_exc(), style="dim", markup=False)
    return Outcome(
        number=number,
        fault=fault.__name__,
        seconds=time.monotonic() - started,
        starts=world.starts - starts,
        lost=len(world.lost) - lost,
        failure=failure,
    )


def by_fault(outcomes: list[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    found: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.fault].append(outcome)
    yield from sorted(found.items())


COLUMNS = ("fault", "times", "survived", "started again", "lost and told", "seconds", "at most")


def rows(outcomes: list[Outcome]) -> Iterator[tuple[str, ...]]:
    for fault, same in [*by_fault(outcomes), ("all", outcomes)]:
        seconds = [outcome.seconds for outcome in same]
        yield (
            fault.replace("_", " "),
            str(len(same)),
            str(sum(not outcome.failure for outcome in same)),
            str(sum(outcome.starts for outcome in same)),
            str(sum(outcome.lost for outcome in same)),
            f"{sum(seconds) / len(seconds):.0f}",
            f"{max(seconds):.0f}",
        )


def as_table(outcomes: list[Outcome], title: str) -> Table:
    table = Table(*COLUMNS, title=title)
    for row in rows(outcomes):
        table.add_row(*row)
    return table


def as_markdown(outcomes: list[Outcome], seed: int) -> str:
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *rows(outcomes)]
    grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    failures = "".join(f"\n- {each.number} {each.fault}: {each.failure[:500]}" for each in outcomes if each.failure)
    return f"Seed {seed}\n\n{grid}\n{failures}\n"
