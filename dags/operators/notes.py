"""What the steps of a run have found, as the note of that run.

A task can't write the note. The scheduler can, and tells its listeners when a run has ended.
"""

from typing import Any

from airflow.listeners import hookimpl
from sqlalchemy import select
from sqlalchemy.orm import object_session

KEY = "lakehouse_note"
"""Of the XCom by which a task says what the note is to hold."""
MOST = 1000
"""Characters that Airflow's database has room for."""


class Notes:
    @hookimpl
    def on_dag_run_success(self, dag_run: Any) -> None:
        take_note(dag_run)

    @hookimpl
    def on_dag_run_failed(self, dag_run: Any) -> None:
        take_note(dag_run)


def take_note(dag_run: Any) -> None:
    """Make a run's note of what its tasks have said; one that a person wrote stays as it is."""
    from airflow.models.xcom import XComModel

    note, session = dag_run.dag_run_note, object_session(dag_run)
    if session is None or (note is not None and note.user_id is not None):
        return
    of_the_run = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id, XComModel.key == KEY)
    pushed = session.scalars(select(XComModel.value).where(*of_the_run).order_by(XComModel.timestamp))
    said = [line for line in pushed if isinstance(line, str)]
    if said:
        text = "\n".join(said)
        # A line that is cut could end within a quotation.
        dag_run.note = text if len(text) <= MOST else text[: MOST + 1].rpartition("\n")[0] or text[:MOST]
