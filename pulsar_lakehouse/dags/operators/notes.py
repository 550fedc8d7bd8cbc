"""The note of a run: what its steps found.

A task can't write the note. The scheduler can, and calls its listeners when a run has ended.
"""

from typing import TYPE_CHECKING

from airflow.listeners import hookimpl
from sqlalchemy import select
from sqlalchemy.orm import object_session

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

KEY = "lakehouse_note"
"""The key of the XCom in which a task puts its lines of the note."""
MOST = 1000
"""Longest note in characters: Airflow's database has no room for more."""


class Notes:
    @hookimpl
    def on_dag_run_success(self, dag_run: "DagRun") -> None:
        take_note(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: "DagRun") -> None:
        take_note(dag_run)


def take_note(dag_run: "DagRun") -> None:
    """Set the note of a run to the lines of its tasks. A note that a person wrote is kept."""
    from airflow.models.xcom import XComModel

    note, session = dag_run.dag_run_note, object_session(dag_run)
    if session is None or (note is not None and note.user_id is not None):
        return
    of_the_run = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == KEY)
    pushed = session.scalars(select(XComModel.value).where(*of_the_run).order_by(XComModel.timestamp))
    said = [line for line in pushed if isinstance(line, str)]
    if said:
        text = "\n".join(said)
        # Cut between lines: a line that is cut could end within a quotation.
        dag_run.note = text if len(text) <= MOST else text[: MOST + 1].rpartition("\n")[0] or text[:MOST]
