"""Tells what the runs of a step read and wrote: in OpenLineage's format, to a file and to the configured backend.

Nothing that fails here stops a step.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any

from deltalake import DeltaTable
from pyspark.sql.types import StructType

from pulsar_lakehouse.inspection.row_counts import rows_written
from pulsar_lakehouse.jobs.lineage.backend import backend, is_disabled
from pulsar_lakehouse.jobs.lineage.flows import Flow
from pulsar_lakehouse.jobs.lineage.kept import keep_event
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of
from pulsar_lakehouse.tables.stored import is_stored, stored_table


def prepare() -> None:
    """Find the backend, and load in a thread what is needed later.

    Raises ConfigurationError for a wrong configuration of OpenLineage.
    """
    if not is_disabled():
        backend()
        threading.Thread(target=import_module, args=("pulsar_lakehouse.jobs.lineage.events",), daemon=True).start()


class StepRuns:
    """The runs of a step, one after another. A flow of None is not told."""

    def __init__(self, settings: Settings, flow: Flow | None) -> None:
        self._settings, self._flow = settings, None if is_disabled() else flow
        self._began = datetime.now(UTC)
        self._run_id = ""
        """Of the run that is going on, if it was told."""
        self._names: Mapping[str, tuple[str, str]] = {}
        self._versions: dict[str, int] = {}
        """Of the tables that the step writes, before the run."""

    def start(self, *, tell: bool = True) -> None:
        """A run begins. Without `tell`, nobody hears of it before it has read rows, or has failed."""
        self._began = datetime.now(UTC)
        if (flow := self._flow) is not None:
            with _never_stopping():
                from pulsar_lakehouse.jobs.lineage.events import names_of  # takes half a second

                self._names = self._names or names_of(self._settings, flow)
                if not self._versions:
                    self._versions = {name: _version(table) for name, table in self._tables(flow.columns).items()}
                if tell:
                    self._tell(flow, "START")

    def complete(self, read: int | None = None) -> None:
        """The run has ended, and read so many rows."""
        if self._run_id or read:
            self._end("COMPLETE", read=read)

    def fail(self, failure: str) -> None:
        self._end("FAIL", failure=failure)

    def abort(self) -> None:
        """The run is stopped, unless it has ended."""
        if self._run_id:
            self._end("ABORT")

    def _tables(self, names: Iterable[str]) -> dict[str, DeltaTable | None]:
        at = self._settings
        return {name: stored_table(at, name) if is_stored(at, name) else None for name in names if " " not in name}

    def _done(self, flow: Flow) -> dict[str, Any]:
        """What the tables say about the run: rows that it wrote, and columns."""
        made = self._tables(flow.columns)
        known = {name: table for name, table in {**self._tables(flow.reads), **made}.items() if table}
        written = {name: rows_written(table, self._versions[name]) for name, table in made.items() if table}
        self._versions = {name: _version(table) for name, table in made.items()}
        schemas = {name: StructType.fromJson(json.loads(table.schema().to_json())) for name, table in known.items()}
        return {"written": written, "schemas": schemas}

    def _end(self, state: str, **told: Any) -> None:
        if (flow := self._flow) is not None:
            with _never_stopping():
                done = self._done(flow) if state == "COMPLETE" else {}
                if not self._run_id:
                    self._tell(flow, "START", at=self._began)
                self._tell(flow, state, **done, **told)
                self._run_id = ""

    def _tell(self, flow: Flow, state: str, *, at: datetime | None = None, **done: Any) -> None:
        from openlineage.client.serde import Serde
        from openlineage.client.uuid import generate_new_uuid

        from pulsar_lakehouse.jobs.lineage.events import Done, run_event

        now = at or datetime.now(UTC)
        self._run_id = self._run_id or str(generate_new_uuid(now))
        event = run_event(
            self._settings, flow, state, run_id=self._run_id, at=now, names=self._names, done=Done(**done)
        )
        keep_event(self._settings, flow.step, Serde.to_json(event))
        if found := backend():
            found.send(event)


def _version(table: DeltaTable | None) -> int:
    return -1 if table is None else int(table.version())


@contextmanager
def _never_stopping() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a full disk, a broker or a store that is down: the step will tell it, if it matters
        _warn_once(type(error).__name__, cause_of(error))


@cache
def _warn_once(kind: str, cause: str) -> None:
    CONSOLE.say(f"Lineage: an event is missing: {kind}: {cause}")


@contextmanager
def told(settings: Settings, flow: Flow) -> Iterator[StepRuns]:
    """Tells of a run that lasts as long as the block, if it does not end before, and that fails if the block does."""
    runs = StepRuns(settings, flow)
    runs.start()
    try:
        yield runs
    except Exception as error:
        runs.fail(cause_of(error))
        raise
    except BaseException:
        runs.abort()
        raise
    runs.complete()
