"""`make failing-network`: see *A network that fails* in docs/reliability.md."""

import random
import shutil
import signal
import time
from typing import Annotated

import typer
from rich.console import Console

from pulsar_lakehouse.settings import load_settings
from tests.network.run import Outcome, counted, distant_world, episode

CONSOLE = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def failing_network(
    seed: Annotated[int, typer.Option(help="The same seed gives the same faults and messages.")] = 1,
    minutes: Annotated[float, typer.Option(help="No fault begins later than that.")] = 30,
    store: Annotated[bool, typer.Option(help="Keep the tables in an object store, behind a proxy as well.")] = False,
) -> None:
    """Let the network between the product and its servers fail and heal, and compare the tables each time."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    home = load_settings().home / "network"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    outcomes = list[Outcome]()
    with distant_world(home, random.Random(seed), has_store=store) as world:
        until = time.monotonic() + minutes * 60
        while time.monotonic() < until:
            outcome = episode(world)
            outcomes.append(outcome)
            told = f"{len(outcomes):>3} {outcome.seconds:5.0f} s  {outcome.failure or 'survived'}  {outcome.what}"
            CONSOLE.print(told, style="red" if outcome.failure else "")
            for line in [*outcome.commands, *world.told]:
                CONSOLE.print(f"      {line}", style="dim")
            world.told.clear()
            if outcome.failure:
                break
        CONSOLE.print(counted(world))
    failed, starts = sum(bool(each.failure) for each in outcomes), sum(each.starts for each in outcomes)
    CONSOLE.print(f"{len(outcomes)} times, {len(outcomes) - failed} survived, started again {starts} times")
    if failed:
        raise SystemExit(1)
    shutil.rmtree(home)


if __name__ == "__main__":
    typer.run(failing_network)
