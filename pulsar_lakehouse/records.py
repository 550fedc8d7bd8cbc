"""What runs have done, kept in `<home>/records` for `lakehouse status` and the metrics. No step reads it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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


def step_record(settings: Settings, step: str) -> StepRecord:
    """The record of a step; an empty one if there is none. Needs no field, and ignores those of other releases."""
    path = _folder(settings) / f"{step}.json"
    return StepRecord(**_known(StepRecord, _read(path)) | {"step": step})


def step_records(settings: Settings) -> list[StepRecord]:
    return [step_record(settings, path.stem) for path in sorted(_folder(settings).glob("* *.json"))]


def keep_step(settings: Settings, record: StepRecord) -> None:
    """Keep a record. The process that holds the lease of the step's table is the only one that does."""
    _write(_folder(settings) / f"{record.step}.json", asdict(record))


def keep_reconciliations(settings: Settings, done: Sequence[Reconciliation]) -> None:
    now = datetime.now(UTC).timestamp()
    records = [
        ReconciliationRecord(
            topic=each.topic, holds=each.holds, difference=each.difference, problems=each.problems, at=now
        )
        for each in done
    ]
    _write(_folder(settings) / "reconciliation.json", [asdict(record) for record in records])


def reconciliation_records(settings: Settings) -> list[ReconciliationRecord]:
    """The last reconciliation of each topic."""
    known = [_known(ReconciliationRecord, each) for each in _read(_folder(settings) / "reconciliation.json") or ()]
    whole = (each for each in known if len(each) == len(fields(ReconciliationRecord)))
    return [ReconciliationRecord(**each | {"problems": tuple(each["problems"])}) for each in whole]


def _known(kind: type[StepRecord | ReconciliationRecord], kept: Any) -> dict[str, Any]:
    """The fields that a record of this release has; none if what was kept is no record."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in kept.items() if name in names} if isinstance(kept, dict) else {}


def _folder(settings: Settings) -> Path:
    return settings.home / "records"


def _read(path: Path) -> Any:
    """The JSON of a file; None if there is none, or if a power cut has torn it."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _write(path: Path, content: object) -> None:
    """Replace the file at once, so that nobody reads half of it. A record that can't be kept stops nothing."""
    draft = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(content))
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
