"""What the commands of a run take, one after the other, as Airflow starts them, and what some without Spark take.

    .venv/bin/python -m benchmarks commands [--orders 10400] [--rounds 4] [--no-engine]

The shop's messages are sent before each round. Seconds and CPU seconds, with those of the engine and its Spark, of each
command in the first round and in the last one; of the commands without Spark, the median of five.
"""

import os
import subprocess
import sys
from itertools import islice
from typing import Annotated

import typer

from benchmarks.bench import Lap, backlog, lap, middle, total
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.engine import control
from pulsar_lakehouse.progress import CONSOLE, spinner
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_published
from tests.shop import SHOP, TOPICS

STEPS = ("land", "merge", "enrich", "reconcile", "validate --new", "refresh --validate", "publish")
WITHOUT_SPARK = ("--version", "status", "plan --quick", "sql SELECT 1")


def main(
    orders: Annotated[int, typer.Option(help="Orders in each round.")] = 10_400,
    users: Annotated[int, typer.Option(help="Users in each round; there are 2,198 items besides.")] = 1_000,
    rounds: Annotated[int, typer.Option(min=2, help="How often messages are sent, and taken by all commands.")] = 4,
    engine: Annotated[bool, typer.Option(help="Whether an engine keeps Spark and Python warm.")] = True,
) -> None:
    workload = Workload(users=users, orders=orders)
    with backlog(workload) as (settings, endpoint, _):
        os.environ["LAKEHOUSE_HOME"] = str(settings.home)
        create_published(SHOP.published_topics, endpoint, settings)
        if engine:
            control.start(settings)
        try:
            later, laps = workload.orders_from_now(1_000), list[dict[str, Lap]]()
            for number in range(rounds):
                if number:
                    again = {topic: workload.first(topic.name) for topic in TOPICS if topic.changelog}
                    produce([*again.items(), (ORDERS.topic, islice(later, orders))], endpoint, settings)
                with spinner(f"Round {number + 1} of {rounds}"):
                    laps.append({step: timed(step) for step in STEPS})
                CONSOLE.say(", ".join(f"{step.split()[0]} {each.wall:.1f}" for step, each in laps[-1].items()))
            others = {name: middle([timed(name) for _ in range(5)]) for name in WITHOUT_SPARK}
        finally:
            control.stop(settings)
    show(laps[0], laps[-1], others)


def timed(command: str) -> Lap:
    """Run a command; raises CalledProcessError if it fails."""
    name, *arguments = command.split(maxsplit=1)
    with lap() as measured:
        command_line = [sys.executable, "-P", "-m", "pulsar_lakehouse.cli", name, *arguments]
        subprocess.run(command_line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return measured


def show(first: dict[str, Lap], last: dict[str, Lap], others: dict[str, Lap]) -> None:
    rows = [(step, *first[step].seconds(), *last[step].seconds()) for step in first]
    rows.append(("all", *total(first.values()).seconds(), *total(last.values()).seconds()))
    rows += [(name, "", "", *each.seconds()) for name, each in others.items()]
    report.rows(["command", "first, s", "CPU s", "last, s", "CPU s"], rows, title="Commands")
