"""`make failing-writes`: see *How `make failing-writes` tests* in docs/reliability.md."""

import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from pulsar_lakehouse.local import broker
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.spark.session import SHORT_RUN, start_spark, stop_spark
from pulsar_lakehouse.tables import lake as lakes
from tests.failing_writes.run import Outcome, World, drawn, drawn_commands, drawn_power_cuts
from tests.failing_writes.scenario import STEPS
from tests.failing_writes.shim import NO_COMPILER, Shim, has_compiler

CONSOLE = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def failing_writes(
    seed: Annotated[int, typer.Option(help="The same seed gives the same failures.")] = 1,
    times: Annotated[int, typer.Option(min=0, help="How many steps fail.")] = 300,
    commands: Annotated[int, typer.Option(min=0, help="How many commands fail, each with a JVM of its own.")] = 0,
    power_cuts: Annotated[bool, typer.Option(help="Lose the power instead.")] = False,
    by_spark: Annotated[bool, typer.Option(help="Spark also writes few rows, not only many.")] = False,
    only: Annotated[str, typer.Option(help="Only steps whose name contains this regular expression.")] = "",
    minutes: Annotated[float, typer.Option(help="No step begins later than that.")] = 600,
) -> None:
    """Let calls that write fail in a step, do the step again, and compare its tables with those of a whole run."""
    if not has_compiler():
        raise SystemExit(f"failing_writes {NO_COMPILER}")
    if "FAILING_WRITES" not in os.environ:
        raise SystemExit(run_with_shim())
    if by_spark:
        vars(lakes)["FEW_BYTES"] = -1
    began, shim = time.monotonic(), Shim.of_this_process()
    names = [name for name in STEPS if re.search(only, name)]
    with settings_of(shim, needs_broker=any(STEPS[name].needs_broker for name in names)) as settings:
        world = World(start_spark(settings), settings, shim)
        try:
            world.prepare(names)
            for name, counts in world.counts.items():
                CONSOLE.print(f"{name}: {sum(counts.values())} calls, {counts}")
            CONSOLE.print(f"{sum(sum(each.values()) for each in world.counts.values())} calls in all")
            draw, outcomes = random.Random(seed), list[Outcome]()
            steps = drawn_power_cuts if power_cuts else drawn
            trials = [*islice(steps(draw, world.counts), times), *islice(drawn_commands(draw, world.counts), commands)]
            for number, trial in enumerate(trials, 1):
                if time.monotonic() - began > minutes * 60:
                    break
                outcomes.append(world.run(trial))
                show(number, outcomes[-1])
        finally:
            stop_spark()
    wrong = sum(bool(each.wrong) for each in outcomes)
    CONSOLE.print(f"{len(outcomes)} steps failed, {wrong} of them for good, in {time.monotonic() - began:.0f} s")
    for line, times in Counter(line for each in outcomes for line in each.lines).most_common():
        CONSOLE.print(f"{times:>4} {line or '(went on)'}")
    raise SystemExit(wrong > 0)


def run_with_shim() -> int:
    """Run this command again in a process that has the shim."""
    folder = Path(mkdtemp(prefix="failing-writes-"))
    (folder / "under").mkdir()
    shim = Shim(folder, folder / "under")
    code = subprocess.run([sys.executable, "-m", __package__, *sys.argv[1:]], env=os.environ | shim.environment)
    if code.returncode:
        CONSOLE.print(f"Homes of steps that failed for good are in {folder / 'under'}")
    else:
        shutil.rmtree(folder)
    return code.returncode


@contextmanager
def settings_of(shim: Shim, *, needs_broker: bool) -> Iterator[Settings]:
    """Settings of a home where no call fails, with a broker there if it is needed."""
    loaded = load_settings(home=shim.folder / "spark-home")
    settings = loaded.model_copy(
        update={
            "spark": loaded.spark.model_copy(update={"conf": SHORT_RUN | loaded.spark.conf}),
            "run": loaded.run.model_copy(update={"retry_delay": 1}),
        }
    )
    if not needs_broker:
        yield settings
        return
    preloaded = os.environ.pop("LD_PRELOAD")
    found = broker.start(settings)
    os.environ["LD_PRELOAD"] = preloaded
    urls = {"service_url": found.service_url, "admin_url": found.admin_url}
    try:
        yield settings.model_copy(update={"pulsar": settings.pulsar.model_copy(update=urls)})
    finally:
        broker.stop(settings)


def show(number: int, outcome: Outcome) -> None:
    what = f"{number:>4} {outcome.trial.step:<20} {outcome.seconds:5.1f} s"
    CONSOLE.print(f"{what}  {'WRONG' if outcome.wrong else 'survived'}", style="red" if outcome.wrong else "")
    for fault, call, line in zip(outcome.trial.faults, outcome.calls, outcome.lines, strict=True):
        CONSOLE.print(f"       {fault}: {call or 'not reached'} -> {line or '(went on)'}", style="dim")
    if outcome.wrong:
        CONSOLE.print(outcome.wrong)


if __name__ == "__main__":
    typer.run(failing_writes)
