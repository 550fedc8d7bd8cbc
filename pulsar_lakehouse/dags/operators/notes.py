"""Notes: what the steps of a run found and did, on the run and on each of its tasks.

A task can't write notes. The scheduler can, and calls its listeners when a run has ended.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl
from sqlalchemy import select
from sqlalchemy.orm import object_session

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy.orm import Session

OF_RUN, OF_TASK = "lakehouse_note", "lakehouse_task_note"
"""The keys of the XComs in which a task puts its lines of the run's note, and its own note."""
MOST = 1000
"""Longest note in characters: Airflow's database has no room for more."""


class Notes:
    @hookimpl
    def on_dag_run_success(self, dag_run: "DagRun") -> None:
        take_notes(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: "DagRun") -> None:
        take_notes(dag_run)


def line_of(table: Mapping[str, Any]) -> str:
    """What a table holds, as a line of the note of the task that writes it."""
    late = {None: "", 0: ", up to date", 1: ", 1 commit behind"}.get(table["lag"], f", {table['lag']} commits behind")
    return f"{table['table']}: {table['rows']:,} rows{late}"


def take_notes(dag_run: "DagRun") -> None:
    """Set the notes of a run and of its tasks to what its tasks have said. A note that a person wrote is kept."""
    session = object_session(dag_run)
    if session is None:
        return
    said = _pushed(dag_run, OF_RUN, session)
    note = dag_run.dag_run_note
    if said and (note is None or note.user_id is None):
        dag_run.note = _cut("\n".join(said.values()))
    own = _pushed(dag_run, OF_TASK, session)
    for task in dag_run.get_task_instances(session=session) if own else ():
        _take_note(task, own.get((task.task_id, task.map_index)))


def _take_note(task: "TaskInstance", text: str | None) -> None:
    note = task.task_instance_note
    if text is not None and (note is None or note.user_id is None):
        task.note = _cut(text)


def _pushed(dag_run: "DagRun", key: str, session: "Session") -> dict[tuple[str, int], str]:
    """The texts with this key, by task, in the order in which they were pushed."""
    from airflow.models.xcom import XComModel

    of_the_run = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == key)
    columns = (XComModel.task_id, XComModel.map_index, XComModel.value)
    found = session.execute(select(*columns).where(*of_the_run).order_by(XComModel.timestamp))
    return {(task, index): text for task, index, text in found if isinstance(text, str)}


def _cut(text: str) -> str:
    """Cut between lines: a line that is cut could end within a quotation."""
    return text if len(text) <= MOST else text[: MOST + 1].rpartition("\n")[0] or text[:MOST]
