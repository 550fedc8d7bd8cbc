"""How old a change of a database is when silver has it: from its commit in Postgres to its commit in Delta.

    .venv/bin/python -m benchmarks replication_delay [--rate 100] [--every 1s] [--seconds 120] [--warm-up 60]

Pulsar's own connector replicates a table of Postgres, whose rows are updated at a steady rate, each in a transaction of
its own. `lakehouse run --every` lands and merges them. Changes during the warm-up do not count.
"""

import random
import time
from datetime import UTC, datetime
from typing import Annotated

import duckdb
import typer
from deltalake import DeltaTable

from benchmarks.bench import cpu_seconds, emptied_home
from benchmarks.freshness import running, spread, until_rows
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.settings import Settings
from tests.debezium import Connector, Form, allow_any_schema, logical_postgres
from tests.lake import own_topics
from tests.replicated import BY_NAME, Replicated, declare

PREFIX, TABLE = "shop", BY_NAME["customers"]


def main(
    rate: Annotated[int, typer.Option(help="Changes a second.")] = 100,
    rows: Annotated[int, typer.Option(help="Rows that exist before.")] = 10_000,
    every: Annotated[str, typer.Option(help="Passed to `lakehouse run --every`.")] = "1s",
    warm_up: Annotated[int, typer.Option(help="Seconds of warm-up, which do not count.")] = 60,
    seconds: Annotated[int, typer.Option(help="Seconds that count.")] = 120,
) -> None:
    settings = emptied_home()
    own = own_topics(settings, broker.start(settings), settings.home / "replication", [])
    folder = own.home / "declarations"
    allow_any_schema(own)
    declare(folder, PREFIX, Form.JSON, (TABLE,))
    try:
        with logical_postgres(own.home) as url:
            database = Replicated(url, (TABLE,))
            database.execute(
                f"INSERT INTO customers (id, name) SELECT id, 'name ' || id FROM generate_series(1, {rows}) id"
            )
            connector = Connector(PREFIX, url, own, own.home / "connector", tables=[TABLE.name])
            try:
                connector.start()
                connector.wait_until_sent()
                with running(own, given={"LAKEHOUSE_DECLARATIONS": str(folder)}, every=every) as run:
                    until_rows(own, rows, run, "silver.customers")
                    change(database, rows, rate, warm_up)
                    since, before = datetime.now(UTC), cpu_seconds(run.pid)
                    change(database, rows, rate, seconds)
                    until, busy = datetime.now(UTC), (cpu_seconds(run.pid) - before) / seconds
                    connector.wait_until_sent()
                    time.sleep(20)
            finally:
                connector.close()
        found = delays(own, since, until)
    finally:
        broker.stop(settings)
    columns = ["changes", "p50 s", "p95 s", "p99 s", "cores busy"]
    title = f"From commit to commit, {rate:,} changes a second, every {every}"
    report.rows(columns, [[*spread(found, 0.5, 0.95, 0.99), f"{busy:.2f}"]], title=title)


def change(database: Replicated, rows: int, rate: int, seconds: int) -> None:
    """Update random rows, each of which then says when."""
    begin = time.monotonic()
    for number in range(rate * seconds):
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))
        key = random.randint(1, rows)
        database.execute("UPDATE customers SET registered = clock_timestamp() WHERE id = %s", key)


def delays(settings: Settings, since: datetime, until: datetime) -> list[float]:
    """Seconds from the change of a row to the commit in which silver has it, ascending.

    A change is left out if silver got another one of its row in the same commit.
    """
    silver = DeltaTable(settings.table_path("silver.customers"))
    columns = ["registered", "_change_type", "_commit_timestamp"]
    changes = silver.load_cdf(starting_version=0, columns=columns).read_all()
    found = (
        duckdb.connect()
        .register("changes", changes)
        .execute(
            """
        SELECT epoch(_commit_timestamp) - epoch(registered) AS age FROM changes
        WHERE _change_type = 'update_postimage' AND registered BETWEEN ? AND ? ORDER BY age
        """,
            [since, until],
        )
    )
    return [age for (age,) in found.fetchall()]
