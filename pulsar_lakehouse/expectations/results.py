"""The results of rules, which are kept in `quality.results`, and figures from the tables' logs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.expectations.suites import Severity
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.inspection.table_status import TableStatus
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import existing_tables, is_stored

RESULTS = Table(
    name="quality.results",
    columns="""
        run STRING, validated_at TIMESTAMP, table_name STRING, version BIGINT, table_rows BIGINT, scope STRING,
        rule STRING, severity STRING, outcome STRING, rows BIGINT, failing BIGINT, observed STRING
    """,
    properties={"delta.appendOnly": "true"},
)
"""One row per rule and run. `outcome` is passed, failed or error. Of `rows` evaluated, `failing` did not pass.

`scope` is `whole`, `new` if only rows were evaluated that arrived after the last validation, or `nothing new` if the
table had not changed since. `version` and `table_rows` are the table's.
"""

NEWEST = "max.publish_time"

Figures = Mapping[str, int | float | datetime | None]

REMEMBERED = 10
"""Validations from which the usual growth is computed."""


@dataclass(frozen=True, kw_only=True)
class Result:
    table_name: str
    version: int
    table_rows: int
    scope: str
    rule: str
    severity: Severity
    outcome: str
    rows: int | None
    failing: int | None
    observed: str

    @property
    def stops(self) -> bool:
        """Whether what is made from the tables has to wait. An error does so at any severity."""
        return self.outcome == "error" or (self.outcome == "failed" and self.severity is Severity.CRITICAL)


@dataclass(frozen=True, kw_only=True)
class Validated:
    """A table's last validation. `whole_at` is None if the whole table has to be validated next."""

    version: int
    at: datetime
    whole_at: datetime | None
    rows: int
    usual_growth: float | None


def keep(lake: Lake, results: Sequence[Result], *, run: str, at: datetime) -> None:
    lake.create(RESULTS)
    rows = [{"run": run, "validated_at": at, **asdict(result), "severity": str(result.severity)} for result in results]
    append_values(lake.settings, RESULTS.name, rows)


def last_validated(settings: Settings) -> dict[str, Validated]:
    """The last validation of each table, from `quality.results`."""
    if not is_stored(settings, RESULTS.name):
        return {}
    last = query(
        settings,
        f"""
        SELECT table_name, arg_max(version, validated_at), max(validated_at),
               max(validated_at) FILTER (WHERE scope = 'whole'), arg_max(stopped, validated_at),
               list_slice(list(table_rows ORDER BY validated_at), -{REMEMBERED + 1}, -1)
        FROM (
            SELECT run, validated_at, table_name, version, table_rows, scope,
                   bool_or(outcome = 'error' OR (outcome = 'failed' AND severity = 'critical')) AS stopped
            FROM {RESULTS.name} GROUP BY ALL
        )
        GROUP BY table_name
        """,
    ).fetchall()
    return {
        table: Validated(
            version=version,
            at=at,
            whole_at=None if stopped else whole_at,  # the rows that failed have to pass, not only new ones
            rows=rows[-1],
            usual_growth=usual_growth_of(rows),
        )
        for table, version, at, whole_at, stopped, rows in last
    }


def usual_growth_of(rows: Sequence[int]) -> float | None:
    """The median growth in rows between validations at which a table had grown; None if there were fewer than three."""
    grown = [after - before for before, after in pairwise(rows) if after > before]
    return median(grown) if len(grown) >= 3 else None


def figures(settings: Settings, statuses: Collection[TableStatus]) -> Figures:
    """Figures of tables, by name.

    A table's name stands for its rows, `quarantine.malformed.<topic>` for the topic's rows. There are also
    `lag/<table>` and `newest/<table>`.
    """
    topics = (status.name.removeprefix("bronze.") for status in statuses if status.name.startswith("bronze."))
    malformed = {f"{MALFORMED.name}.{topic}": 0 for topic in topics}
    known: dict[str, int | float | datetime | None] = {}
    for status in statuses:
        known |= {status.name: status.rows, f"lag/{status.name}": status.lag}
    for name, table in existing_tables(settings):
        files = table.get_add_actions(flatten=True)
        if name == MALFORMED.name:
            for topic, rows in zip(files["partition.topic"].to_pylist(), files["num_records"].to_pylist(), strict=True):
                malformed[f"{name}.{topic}"] = malformed.get(f"{name}.{topic}", 0) + rows
        elif NEWEST in files.schema.names:
            known[f"newest/{name}"] = max(filter(None, files[NEWEST].to_pylist()), default=None)
    return known | malformed


def figures_of(table: str, known: Figures, before: Validated | None) -> Figures:
    """The figures that the rules of a table can name."""
    own = {"rows": known.get(table), "lag": known.get(f"lag/{table}"), "newest": known.get(f"newest/{table}")}
    if before is not None:
        own |= {"rows_before": before.rows, "usual_growth": before.usual_growth}
    return {**known, **own}
