"""A lake whose data tries to become a part of the page, and how tests ask for views of it."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from pulsar_lakehouse.page.page import Page
from pulsar_lakehouse.page.requests import Answer, Request, User
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.records import StepRecord, keep_reconciliations, keep_step
from pulsar_lakehouse.settings import Settings

HOSTILE = """<img src=x onerror="alert(1)">'"></td></textarea></title><script>alert(2)</script>\u202e&amp;\x1b[31m"""
SHOWN = r"""<img src=x onerror="alert(1)">'"></td></textarea></title><script>alert(2)</script>\u202e&amp;\x1b[31m"""
"""How a reader sees it."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
POSITION = pa.struct(
    {"partition": pa.int32(), "ledger_id": pa.int64(), "entry_id": pa.int64(), "batch_index": pa.int32()}
)
STATE = pa.struct({"entity": pa.string(), "key": pa.string(), "reason": pa.string()})
TIME = pa.timestamp("us", "UTC")
SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "quarantine.waiting_orders": {
        "invoice_id": pa.string(),
        "line_item_id": pa.int64(),
        "position": POSITION,
        "missing": pa.list_(STATE),
        "attempts": pa.int32(),
        "waiting_since": TIME,
    },
    "quarantine.malformed": {
        **{"topic": pa.string(), "position": POSITION, "key": pa.string()},
        **{"payload": pa.binary(), "reason": pa.string(), "quarantined_at": TIME},
    },
    "quarantine.sql_rows": {
        **{"table": pa.string(), "reason": pa.string()},
        **{"keys": pa.string(), "quarantined_at": TIME},
    },
    "quarantine.actions": {
        **{"action": pa.string(), "topic": pa.string(), "position": POSITION},
        **{"requested_at": TIME, "requested_by": pa.string(), "note": pa.string()},
    },
}


def position(entry: int) -> dict[str, int]:
    return {"partition": 0, "ledger_id": 7, "entry_id": entry, "batch_index": 0}


def waiting(line: int, *, invoice: str = "7", key: str = "5", reason: str = "missing") -> dict[str, Any]:
    missing = [{"entity": "users", "key": key, "reason": reason}]
    where = {"invoice_id": invoice, "line_item_id": line, "position": position(line)}
    return {**where, "missing": missing, "attempts": 1, "waiting_since": NOW}


def write(settings: Settings, name: str, rows: list[dict[str, Any]]) -> None:
    """Add rows to a table of quarantine, without Spark."""
    write_deltalake(
        settings.table_path(name), pa.Table.from_pylist(rows, schema=pa.schema(SCHEMAS[name])), mode="append"
    )


def fill(settings: Settings) -> None:
    """Hostile text wherever data or errors can bring it."""
    write(settings, "quarantine.waiting_orders", [waiting(1), waiting(2, invoice=HOSTILE, key=HOSTILE, reason=HOSTILE)])
    malformed = {"topic": "users", "position": position(1), "key": HOSTILE, "payload": HOSTILE.encode()}
    write(settings, "quarantine.malformed", [{**malformed, "reason": HOSTILE, "quarantined_at": NOW}])
    left_out = {"table": "gold.revenue_by_hour", "reason": HOSTILE, "keys": HOSTILE, "quarantined_at": NOW}
    write(settings, "quarantine.sql_rows", [left_out])
    asked = {"action": "release", "topic": HOSTILE, "position": position(9), "requested_at": NOW}
    write(settings, "quarantine.actions", [{**asked, "requested_by": HOSTILE, "note": HOSTILE}])
    keep_step(settings, StepRecord(step="land orders", failure=HOSTILE))
    keep_step(settings, StepRecord(step="land users", retry=HOSTILE))
    keep_reconciliations(settings, [Reconciliation(topic="users", landed=2, accounted={"silver": 1})])
    logs = settings.home / "logs"
    logs.mkdir()
    (logs / "lakehouse.log").write_text(HOSTILE)
    (logs / "<img src=x>.log").write_text("")


def ask_for(page: Page, path: str, query: str = "", *, user: str = "ann", may_act: bool = True) -> Answer:
    return page.answer(Request(path=path, query=query, user=User(user, may_act=may_act)))


def send(page: Page, path: str, body: str, *, user: str = "ann", site: str = "same-origin") -> Answer:
    headers = {"sec-fetch-site": site}
    return page.answer(Request(path=path, method="POST", body=body, headers=headers, user=User(user, may_act=True)))
