"""What each view of the page takes, with many orders, and what the look at the pipeline's state takes of it.

    .venv/bin/lakehouse demo
    .venv/bin/python -m benchmarks page [--orders 10000000]

The tables of the demo are copied, and their orders multiplied: each commit adds those of some more days, with keys and
positions of their own, in bronze and in gold, and the checkpoint says that they were enriched. delta-rs writes them; no
Spark is started. Of five looks, the median counts; the first is told, too, as a view is slower once per process. The
state of the pipeline is found anew each time.
"""

import shutil
import statistics
import time
from pathlib import Path
from typing import Annotated

import duckdb
import typer

from pulsar_lakehouse.checkpoints.batches import begin_behind, last_batch
from pulsar_lakehouse.checkpoints.offsets import behind
from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.demo import demo_settings
from pulsar_lakehouse.page.page import KEPT_SECONDS, Page
from pulsar_lakehouse.page.requests import Request, User
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.tables.direct import append_arrow
from pulsar_lakehouse.tables.stored import dataset_of, existing_tables, stored_table

COPIES = 5
"""How often the orders of the demo are in each commit."""
BRONZE = """
    SELECT * REPLACE (
        ledger_id + 1000 * copy AS ledger_id, publish_date + commit AS publish_date,
        encode(regexp_replace(decode(payload), '"invoiceId":([0-9]+)', '"invoiceId":' || copy || '\\1')) AS payload
    ) FROM (SELECT *, {copy} AS copy, {commit}::INTEGER AS commit FROM rows)
"""
GOLD = """
    SELECT * REPLACE (
        (copy || invoice_id)::BIGINT AS invoice_id, order_date + commit * 4 AS order_date,
        created_at + to_days(commit * 4) AS created_at,
        struct_update(position, ledger_id := position.ledger_id + 1000 * copy) AS position
    ) FROM (SELECT *, {copy} AS copy, {commit}::INTEGER AS commit FROM rows)
"""
COUNT = "statement=SELECT+count(*)+FROM+gold.enriched_orders"
SUM = "statement=SELECT+item.category,+sum(price)+FROM+gold.enriched_orders+GROUP+BY+1"
VIEWS = {
    "overview": ("", "", ""),
    "tables": ("tables", "", ""),
    "quarantine": ("quarantine", "", ""),
    "trace, of a user": ("trace", "topic=users&key=17", ""),
    "trace, of an order": ("trace", "topic=orders&key={order}", ""),
    "sql, a count": ("sql", "", COUNT),
    "sql, a sum by category": ("sql", "", SUM),
    "logs": ("logs", "", ""),
}
"""Path, query and form of each view."""


def main(
    orders: Annotated[int, typer.Option()] = 10_000_000,
    folder: Annotated[Path, typer.Option(help="Where the lake is made, and used again.")] = Path("/tmp/page-lake"),
) -> None:
    settings = load_settings(home=folder)
    if not folder.exists():
        shutil.copytree(demo_settings(load_settings()).home, folder)
        multiply(settings, "bronze.orders", BRONZE, orders)
        multiply(settings, "gold.enriched_orders", GOLD, orders)
        read_all(settings, "gold.enriched_orders", "bronze.orders")
    tables = [(name, f"{table.count():,}", f"{table.version():,}") for name, table in existing_tables(settings)]
    report.OUT.print(report.grid(("table", "rows", "version"), tables, numbers=True))
    (row,) = duckdb.from_arrow(dataset_of(stored_table(settings, "gold.enriched_orders"))).limit(1).fetchall()
    page, rows = Page(settings), []
    for name, (path, query, form) in VIEWS.items():
        asked = query.format(order=f"{row[0]}+{row[1]}")
        times = [_milliseconds(page, path, asked, form) for _ in range(6)]
        rows.append((name, f"{times[0]:,.0f}", f"{statistics.median(times[1:]):,.0f}"))
    report.OUT.print(report.grid(("view", "first, ms", "then, ms"), rows, numbers=True))


def multiply(settings: Settings, name: str, statement: str, orders: int) -> None:
    """Add copies of a table's rows until they are so many."""
    table = stored_table(settings, name)
    schema = dataset_of(table).schema
    rows = dataset_of(table).to_table()
    for commit in range(1, 1 + round(orders / len(rows) / COPIES)):
        copies = (1000 + commit * COPIES + each for each in range(COPIES))
        statements = (statement.format(copy=copy, commit=commit) for copy in copies)
        added = duckdb.from_arrow(rows).query("rows", " UNION ALL ".join(statements))
        assert added is not None
        append_arrow(settings, name, added.to_arrow_table().select(schema.names).cast(schema))


def read_all(settings: Settings, stream: str, source: str) -> None:
    """Let the checkpoint of a stream say that it has read all of a source."""
    table, batch = stored_table(settings, source), last_batch(settings, stream)
    assert batch
    _, context, *offsets = batch.offsets.splitlines()
    id = str(table.metadata().id)
    offsets = [behind(id, table.version()) if id in offset else offset for offset in offsets]
    shutil.rmtree(settings.checkpoint_path(stream))
    begin_behind(settings, stream, offsets, context)


def _milliseconds(page: Page, path: str, query: str, form: str) -> float:
    time.sleep(KEPT_SECONDS)
    headers, method = {"sec-fetch-site": "same-origin"}, "POST" if form else "GET"
    user = User("bench", may_act=True)
    request = Request(path=path, query=query, body=form, method=method, headers=headers, user=user)
    began = time.monotonic()
    answer = page.answer(request)
    took = time.monotonic() - began
    assert answer.status == 200, answer.body
    return took * 1000
