"""What slows down as tables grow old, and what maintenance mends: seconds of reads and small batches.

    .venv/bin/python -m benchmarks growth [--commits 100000] [--files 20000] [--days 365]

Each table gets as many commits as a stream makes in `days`. The first `files` of them divide its rows into files of one
row; each later one replaces one of these files. They are written straight into the log, as compactions, so that no
stream takes them for news, and with the times at which a stream would have made them. A checkpoint is written at the
end, and one of nine days before. What is measured is measured three times: before, after that, and after `lakehouse
maintain`.

No broker is needed, as Spark writes the messages. Of a few rounds in a warm JVM, the best one counts.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from deltalake import DeltaTable

from benchmarks.bench import caught_up, lakes, open_lake
from benchmarks.small import Measured
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.inspection.table_status import table_statuses
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import commit_file
from tests.shop import ENRICHMENTS, ENTITIES

AGED = (
    "bronze.orders",
    "bronze.users",
    "silver.users",
    "silver.users_history",
    "gold.enriched_orders",
    "quarantine.waiting_orders",
)
DAY = 86_400.0
KEPT_DAYS = 9
"""Days after which Delta removes commits, if there is a checkpoint as old as that."""


def age(settings: Settings, name: str, *, commits: int, files: int, days: float) -> None:
    """Add commits to a table that divide its rows into files, and then replace these one by one."""
    path = Path(settings.table_path(name))
    table = DeltaTable(path)
    old = [str(file) for file in pa.table(table.get_add_actions())["path"].to_pylist()]
    rows, first = table.to_pyarrow_table(), table.version() + 1
    partitions = table.metadata().partition_columns
    files = min(files, commits, rows.num_rows)
    adds = [_write(path, rows.slice(i, 1), partitions, f"{i}-0") for i in range(files - 1)]
    adds.append(_write(path, rows.slice(files - 1), partitions, f"{files - 1}-0"))
    began = time.time() - days * DAY
    for number in range(commits):
        at = began + number * days * DAY / commits
        place = number % files
        replaced = old if number == 0 else [] if number < files else [adds[place]["path"]]
        if number >= files:
            before = path / adds[place]["path"]
            after = before.with_name(f"part-{place}-{number // files}.parquet")
            os.link(before, after)
            adds[place] = {**adds[place], "path": str(after.relative_to(path))}
        _commit(path / "_delta_log" / f"{first + number:020}.json", at, replaced, adds[place])
    kept = int(commits * min(1.0, KEPT_DAYS / days))
    for version in (first + commits - 1 - kept, first + commits - 1):
        DeltaTable(path, version=version).create_checkpoint()
        at = (path / commit_file(version)).stat().st_mtime
        os.utime(path / commit_file(version).replace(".json", ".checkpoint.parquet"), (at, at))


def _write(path: Path, rows: pa.Table, partitions: list[str], name: str) -> dict[str, Any]:
    """Write rows of one partition as a file; returns its `add` action, with statistics if it is one row."""
    first = rows.slice(0, 1).to_pylist()[0]
    values = {column: str(first[column]) for column in partitions}
    folder = "/".join(f"{column}={value}" for column, value in values.items())
    file = path / folder / f"part-{name}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.drop_columns(partitions), file)
    known = dict(_bounds(first)) if rows.num_rows == 1 else {}
    stats = {"numRecords": rows.num_rows, **({"minValues": known, "maxValues": known} if known else {})}
    return {
        "path": f"{folder}/{file.name}".removeprefix("/"),
        "partitionValues": values,
        "size": file.stat().st_size,
        "modificationTime": int(file.stat().st_mtime * 1000),
        "dataChange": False,
        "stats": json.dumps(stats),
    }


def _bounds(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of a row of which Delta keeps bounds."""
    for name, value in row.items():
        if isinstance(value, dict):
            yield name, dict(_bounds(value))
        elif isinstance(value, datetime):
            yield name, f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
        elif isinstance(value, str | int | float | date) and not isinstance(value, bool):
            yield name, value if not isinstance(value, date) else str(value)


def _commit(file: Path, at: float, removed: list[str], add: dict[str, Any]) -> None:
    milliseconds = int(at * 1000)
    info = {"timestamp": milliseconds, "operation": "OPTIMIZE", "operationParameters": {}}
    gone = [{"remove": {"path": old, "deletionTimestamp": milliseconds, "dataChange": False}} for old in removed]
    actions = [{"commitInfo": info}, *gone, {"add": add}]
    file.write_text("\n".join(json.dumps(action) for action in actions))
    os.utime(file, (at, at))


def best_of(messages: Measured, orders: int, rounds: int) -> dict[str, float]:
    """The least seconds of each operation."""
    lake = messages.lake
    users = [each for each in ENTITIES if each.name == "users"]
    gold = lake.table("gold.enriched_orders")
    steps: dict[str, Callable[[], object]] = {
        "`lakehouse status`": lambda: table_statuses(lake.settings),
        "`lakehouse sql`: count gold": lambda: query(lake.settings, f"SELECT count(*) FROM {gold.name}").fetchall(),
        "Spark: find an order": lambda: gold.read().where("invoice_id = 77").collect(),
        f"append {orders:,} orders to bronze": lambda: messages.send("orders", orders),
        f"enrich {orders:,} orders": lambda: caught_up(lake, enriching(lake, ENRICHMENTS)),
        "enrich, nothing new": lambda: caught_up(lake, enriching(lake, ENRICHMENTS)),
        "append 40 users to bronze": lambda: messages.send("users", 40),
        "merge 40 users": lambda: caught_up(lake, merging(lake, users)),
        "merge, nothing new": lambda: caught_up(lake, merging(lake, users)),
    }
    least = dict.fromkeys(steps, math.inf)
    for _, (name, step) in product(range(rounds), steps.items()):
        began = time.monotonic()
        step()
        least[name] = min(least[name], time.monotonic() - began)
    return least


def _log_files(settings: Settings) -> str:
    """The files in the logs of all tables, and their size."""
    files = [file.stat() for file in Path(settings.warehouse_root).glob("*/*/_delta_log/*")]
    return f"{len(files):,} files, {sum(file.st_size for file in files) / 2**20:,.0f} MB in logs"


def main(
    commits: Annotated[int, typer.Option(help="Commits of each table.")] = 100_000,
    files: Annotated[int, typer.Option(help="Small files of each table.")] = 20_000,
    days: Annotated[float, typer.Option(help="Days in which the commits were made.")] = 365,
    orders: Annotated[int, typer.Option(help="New orders in a batch.")] = 2_000,
    rounds: Annotated[int, typer.Option(help="Rounds in a state, of which the best counts.")] = 5,
) -> None:
    found: dict[str, dict[str, float]] = {}
    with open_lake() as outer:
        messages = Measured(lakes(outer, [1])[1], files)
        settings = messages.lake.settings

        def measure(when: str) -> None:
            found[when] = best_of(messages, orders, rounds)
            report.say(f"{when}: {_log_files(settings)}")

        messages.fill(files, files)
        best_of(messages, orders, rounds)
        measure("young")
        for name in AGED:
            age(settings, name, commits=commits, files=files, days=days)
        report.say(f"aged: {_log_files(settings)}")
        measure("old")
        began = time.monotonic()
        compacted = sum(each.compacted for each in maintain(settings))
        report.say(f"maintain: {time.monotonic() - began:.0f} s, {compacted:,} files compacted")
        measure("maintained")
    rows = [[name, *(f"{each[name]:.2f}" for each in found.values())] for name in found["young"]]
    report.rows(["seconds", *found], rows, title=f"{commits:,} commits in {days:g} days, {files:,} files")
