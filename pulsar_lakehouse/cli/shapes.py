"""What commands print with `--json`: docs/json.md shows an example of each.

Times are UTC in ISO 8601, durations are seconds, sizes are bytes, and null is what is not known or does not apply.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic_core import to_json

from pulsar_lakehouse.cli import report

if TYPE_CHECKING:  # few commands load it
    from pulsar_lakehouse.jobs.trace import Event

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]


def show(shape: Any) -> None:
    """Print a shape as JSON: the only place that writes any."""
    report.OUT.file.write(to_json(shape, indent=2, inf_nan_mode="null").decode() + "\n")


@dataclass(frozen=True, kw_only=True)
class TopicPart:
    topic: str
    """Its name in Pulsar."""
    messages: int
    backlog: int
    lag_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Topic:
    topic: str
    messages: int | None
    """Since the broker started."""
    backlog: int | None
    """Entries, each of which is a message or a batch of them."""
    lag_seconds: float | None
    """The age of the oldest of these."""
    problem: str
    """Why the topic, or one of several, can't land; empty if it can."""
    topics: Sequence[TopicPart]
    """Of several topics that land in one table, each; else empty."""


@dataclass(frozen=True, kw_only=True)
class Source:
    source: str
    place: str
    """What is read, such as `postgres public.regions`."""
    rows: int | None
    """Of the last snapshot."""
    changes: int | None
    """What it had inserted, updated or deleted."""
    read_at: datetime | None
    problem: str
    """Why its last snapshot did not land; empty if it did."""


@dataclass(frozen=True, kw_only=True)
class Table:
    table: str
    rows: int
    version: int
    bytes: int
    files: int
    changed_at: datetime
    """When its stream last finished a batch; without a stream, when it last changed."""
    lag_commits: int | None
    """Of its sources."""
    lag_seconds: float | None
    behind_topics_seconds: float | None
    """The age of the oldest message that is on its way here."""


@dataclass(frozen=True, kw_only=True)
class DamagedFile:
    file: str
    """Its path within the table."""
    problem: str
    cure: str


@dataclass(frozen=True, kw_only=True)
class CheckedTable:
    table: str
    files: int
    bytes: int
    without_checksums: int
    """Files whose bytes can't be compared with what was written."""
    damaged: Sequence[DamagedFile]


@dataclass(frozen=True, kw_only=True)
class Check:
    tables: Sequence[CheckedTable]


@dataclass(frozen=True, kw_only=True)
class Held:
    """Messages that are in no layer."""

    topic: str
    place: str
    """`waiting`, `malformed`, `duplicates` or `discarded`."""
    entity: str
    """For which facts wait."""
    reason: str
    messages: int
    expired: int
    oldest_seconds: float | None


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of a table that did not pass in its last validation."""

    table: str
    severity: str
    rules: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class State:
    purpose: str
    rows: int
    bytes: int
    oldest: datetime | None
    newest: datetime | None
    kept: str


@dataclass(frozen=True, kw_only=True)
class Step:
    step: str
    rows: int
    batches: int
    seconds: float
    retries: int
    failures: int
    last_batch_at: datetime | None
    failure: str
    """Why the last run failed; empty if it did not."""


@dataclass(frozen=True, kw_only=True)
class Reconciled:
    topic: str
    holds: bool
    other: int
    """Messages that are of no kind, if the topic has several."""
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Status:
    problems: Sequence[str]
    warnings: Sequence[str]
    topics: Sequence[Topic]
    sources: Sequence[Source]
    tables: Sequence[Table]
    quarantine: Sequence[Held]
    rules: Sequence[Rules]
    state: Sequence[State]
    steps: Sequence[Step]
    reconciliations: Sequence[Reconciled]


@dataclass(frozen=True, kw_only=True)
class Declared:
    layer: str
    name: str
    sources: Sequence[str]
    how: str


@dataclass(frozen=True, kw_only=True)
class Concerned:
    name: str
    columns: Sequence[str]
    """None: all of them, as other rows are there."""
    rows: int | None
    """Of the table. None for a topic, and for a table in Postgres."""


@dataclass(frozen=True, kw_only=True)
class Change:
    table: str
    what: str
    then: str
    kind: str
    """additive, partial or breaking."""
    loses: bool
    """Whether values would be lost or become NULL, so that no run does it."""
    rebuild: str
    """The table to rebuild for it; empty if that makes no difference."""
    rows: int | None
    """Of the table. None if it does not exist yet."""
    downstream: Sequence[Concerned]


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    topic: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    tables: Sequence[Declared]
    changes: Sequence[Change] | None
    """None if that was not asked."""
    unchanged: Sequence[str] | None
    unreadable: Sequence[Unreadable] | None
    command: str | None
    """What brings the tables to the declarations; empty if the next run and refresh do."""
    reads: int | None
    """Bytes of bronze that it reads."""


@dataclass(frozen=True, kw_only=True)
class Equation:
    topic: str
    landed: int
    rows: int | None
    """Their rows, if a message can have many."""
    empty: int
    """The landed messages that have no row."""
    compacted: int
    """The landed messages that compaction had kept."""
    snapshot: int | None
    """The rows of the last snapshot of a source, which bronze has."""
    accounted: Mapping[str, int]
    """By where they are."""
    difference: int
    holds: bool
    problems: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class AcceptedLosses:
    topic: str
    losses: int
    entries: int


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    topics: Sequence[Equation]
    accepted_losses: Sequence[AcceptedLosses]
    lost: Sequence[str]
    """What was lost before it landed, as only the broker knows."""
    not_compared: str
    """Why that was not asked of the broker; empty if it was."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    topic: str
    key: Sequence[str]
    events: "Sequence[Event]"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Facts that lack the same kind of state."""

    topic: str
    reason: str
    entity: str
    messages: int
    oldest: str
    """The key of the one that has waited longest."""
    keys: int
    such_as: str | None
    """The key of the state for which that one waits."""
    tried: int
    since: datetime
    expired: int


@dataclass(frozen=True, kw_only=True)
class Malformed:
    topic: str
    reason: str
    messages: int
    since: datetime
    until: datetime


@dataclass(frozen=True, kw_only=True)
class SqlRows:
    table: str
    reason: str
    rows: int
    example: str | None
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    waiting: Sequence[Waiting]
    malformed: Sequence[Malformed]
    sql_rows: Sequence[SqlRows]
    """The rows that tables declared in SQL leave out."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    snapshot: str
    created_at: datetime
    tables: int
    rows: int
    bytes_kept: int
    """Of files that are kept only for it."""


@dataclass(frozen=True, kw_only=True)
class Snapshots:
    snapshots: Sequence[Snapshot]


@dataclass(frozen=True, kw_only=True)
class LastRun:
    state: str
    """`COMPLETE`, `FAIL`, `ABORT`, or `START` of one that has not ended."""
    at: datetime
    rows: int | None
    failure: str


@dataclass(frozen=True, kw_only=True)
class Made:
    name: str
    sources: Sequence[str]
    step: str
    last_run: LastRun | None


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    sql: str
    """Empty if it is a copy."""
    sources: Sequence["Column"]


@dataclass(frozen=True, kw_only=True)
class Lineage:
    tables: Sequence[Made]
    columns: Sequence[Column]
    """Those that were asked for; then there are no tables."""
