"""Memory of `lakehouse run` while it reads backlogs that don't fit into it: the most that each kind of process takes.

    .venv/bin/python -m benchmarks backpressure [--orders 500000 --orders 2000000] [--memory 1g] [--batch 67108864]

Memory should not grow with the backlog, but with `LAKEHOUSE_RUN__MAX_BYTES_PER_BATCH`.
"""

import os
import subprocess
import time
from collections import Counter
from typing import Annotated

import psutil
import typer

from benchmarks.bench import backlog
from benchmarks.freshness import LAKEHOUSE
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.records import step_record
from pulsar_lakehouse.settings import Settings

STEPS = ("land orders", "enrich orders")


def main(
    orders: Annotated[list[int] | None, typer.Option(help="Orders in the backlog, once for each run.")] = None,
    memory: Annotated[str, typer.Option(help="Heap of Spark.")] = "1g",
    batch: Annotated[int, typer.Option(help="Stored bytes that one batch reads.")] = 64 * 2**20,
) -> None:
    rows = []
    for number in orders or [500_000, 2_000_000]:
        with backlog(Workload(users=50_000, orders=number)) as (settings, _, _):
            began = time.monotonic()
            most = watched(settings, memory, batch)
            speed = number / (time.monotonic() - began)
            batches = " + ".join(f"{step_record(settings, step).batches}" for step in STEPS)
            shown = (f"{most[kind] / 2**20:,.0f}" for kind in ("java", "python3"))
            rows.append((f"{number:,}", batches, *shown, f"{speed:,.0f}"))
    names = ["orders", "batches, land + enrich", "MB of Spark's JVM", "MB of its Python", "orders/s"]
    report.rows(names, rows, title=f"With a heap of {memory}, and batches of {batch:,} bytes")


def watched(settings: Settings, memory: str, batch: int) -> Counter[str]:
    """Run the pipeline. Returns the most bytes that its JVM had, and its JVM's Python processes had together."""
    given = {"LAKEHOUSE_SPARK__MEMORY": memory, "LAKEHOUSE_RUN__MAX_BYTES_PER_BATCH": str(batch)}
    most: Counter[str] = Counter()
    with subprocess.Popen([LAKEHOUSE, "run"], env=os.environ | {"LAKEHOUSE_HOME": str(settings.home)} | given) as run:
        while run.poll() is None:
            most |= resident(psutil.Process(run.pid))
            time.sleep(0.5)
    if run.returncode:
        raise typer.Exit(run.returncode)
    return most


def resident(run: psutil.Process) -> Counter[str]:
    held: Counter[str] = Counter()
    for process in run.children(recursive=True):
        try:
            held[process.name()] += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return held
