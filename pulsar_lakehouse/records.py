"""What runs have done, kept in `<home>/records` for `lakehouse status`, the metrics and `jobs.new_data`."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pulsar_lakehouse import disk
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.settings import Settings


@dataclass(kw_only=True)
class StepRecord:
    """The work of a step, such as `land orders`, in all of its runs. Times are seconds since 1970."""

    step: str
    rows: int = 0
    """Rows read: messages, or changes of tables."""
    batches: int = 0
    seconds: float = 0.0
    """The time that batches took."""
    retries: int = 0
    failures: int = 0
    """Runs that ended because no retry could help."""
    batch_at: float = 0.0
    """When the last batch ended."""
    failure: str = ""
    """Why the last run failed; empty if it did not."""
    retry: str = ""
    """Why the step is tried again; empty once it has read a batch, or has ended."""


@dataclass(frozen=True, kw_only=True)
class ReconciliationRecord:
    topic: str
    holds: bool
    difference: int
    problems: tuple[str, ...]
    at: float
    """In seconds since 1970."""
    other: int = 0
    """Messages that are of no kind, if the topic has several."""


@dataclass(frozen=True, kw_only=True)
class SnapshotRecord:
    """The last snapshot of a source. If this is lost, the next run takes another one, which finds no differences."""

    source: str
    read_at: float
    """In seconds since 1970."""
    rows: int
    changes: int
    """Rows that it had inserted, updated or deleted."""
    state: str
    """Of the files, or the version of the Delta table. Of a service, the keys that it failed for."""
    number: int
    """The newest number in bronze, which is of this snapshot if it had changes; -1 if bronze has no rows."""
    failures: int = 0
    """How many times in a row, after the first, a service has failed for the same keys."""


_STEP, _RECONCILIATION = TypeAdapter(StepRecord), TypeAdapter(ReconciliationRecord)
_SNAPSHOT = TypeAdapter(SnapshotRecord)


def step_record(settings: Settings, step: str) -> StepRecord:
    """The record of a step; an empty one if there is none. Needs no field, and ignores those of other releases."""
    try:
        return _STEP.validate_json((_folder(settings) / f"{step}.json").read_bytes())
    except (OSError, ValueError):  # there is none
        return StepRecord(step=step)


def step_records(settings: Settings) -> list[StepRecord]:
    return [step_record(settings, path.stem) for path in sorted(_folder(settings).glob("* *.json"))]


def keep_step(settings: Settings, record: StepRecord) -> None:
    """Keep a record. The process that holds the lease of the step's table is the only one that does."""
    _write(_folder(settings) / f"{record.step}.json", asdict(record))


def keep_reconciliations(settings: Settings, done: Sequence[Reconciliation]) -> None:
    now = datetime.now(UTC).timestamp()
    records = [
        ReconciliationRecord(
            topic=each.topic,
            holds=each.holds,
            difference=each.difference,
            problems=each.problems,
            at=now,
            other=each.other,
        )
        for each in done
    ]
    _write(_folder(settings) / "reconciliation.json", [asdict(record) for record in records])


def reconciliation_records(settings: Settings) -> list[ReconciliationRecord]:
    """The last reconciliation of each topic."""
    found = []
    with suppress(OSError, json.JSONDecodeError, UnicodeDecodeError):
        for each in json.loads((_folder(settings) / "reconciliation.json").read_text()):
            with suppress(ValidationError):  # of another release
                found.append(_RECONCILIATION.validate_python(each))
    return found


def snapshot_record(settings: Settings, source: str) -> SnapshotRecord | None:
    """The last snapshot of a source; None if there was none, or another release has kept it."""
    try:
        return _SNAPSHOT.validate_json((_folder(settings) / f"source-{source}.json").read_bytes())
    except (OSError, ValueError):
        return None


def keep_snapshot(settings: Settings, record: SnapshotRecord) -> None:
    _write(_folder(settings) / f"source-{record.source}.json", asdict(record))


def keep_failure(settings: Settings, step: str, why: str) -> None:
    """Keep that a run of the step failed outside a stream, and why; with an empty `why`, that it did not."""
    record = step_record(settings, step)
    if why or record.failure:
        record.failures += bool(why)
        record.failure, record.retry = why, ""
        keep_step(settings, record)


def _folder(settings: Settings) -> Path:
    return settings.home / "records"


def _write(path: Path, content: object) -> None:
    """Replace the file at once, so that nobody reads half of it. A record that can't be kept stops nothing."""
    with suppress(OSError):
        disk.write(path, json.dumps(content).encode())
