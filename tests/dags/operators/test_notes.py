from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from pulsar_lakehouse.dags.operators.notes import MOST, OF_RUN, line_of, take_notes


@pytest.fixture
def session() -> Iterator[Session]:
    import_all_models()  # type: ignore[no-untyped-call]
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session


def ended_run(session: Session, *said: object, note: tuple[str, str | None] | None = None) -> DagRun:
    """A run of which each task has pushed something for the note."""
    run = DagRun(dag_id="pipeline", run_id="run", run_type="manual")
    run.note = note
    session.add(run)
    session.flush()
    for second, line in enumerate(said):
        of_the_task = {"dag_run_id": run.id, "dag_id": "pipeline", "run_id": "run", "task_id": f"task_{second}"}
        when = datetime(2026, 1, 1, second=second, tzinfo=UTC)
        session.add(XComModel(**of_the_task, key=OF_RUN, value=line, timestamp=when))
    session.flush()
    return run


def test_a_note_holds_what_the_tasks_have_said(session: Session) -> None:
    run = ended_run(session, "users: 2 landed = 2 current", "orders: 1 landed = 1 enriched")
    take_notes(run)
    assert run.note == "users: 2 landed = 2 current\norders: 1 landed = 1 enriched"


def test_a_run_that_is_repaired_gets_another_note(session: Session) -> None:
    run = ended_run(session, "orders: 1 landed = 1 enriched", note=("orders: 1 landed ≠ 0 enriched", None))
    take_notes(run)
    assert run.note == "orders: 1 landed = 1 enriched"


def test_the_note_of_a_person_stays(session: Session) -> None:
    run = ended_run(session, "orders: 1 landed = 1 enriched", note=("Looked into it", "ada"))
    take_notes(run)
    assert run.note == "Looked into it"


def test_a_note_is_no_longer_than_the_database_allows(session: Session) -> None:
    run = ended_run(session, "x" * MOST, "y")
    take_notes(run)
    assert run.note == "x" * MOST


def test_a_line_for_which_there_is_no_room_is_left_out(session: Session) -> None:
    run = ended_run(session, "x", f"`{'y' * MOST}`")
    take_notes(run)
    assert run.note == "x"


def test_what_is_no_text_is_passed_over(session: Session) -> None:
    """An Airflow with this package calls the listener for the runs of all DAGs, whatever these push."""
    run = ended_run(session, {"of": "another"}, "orders: 1 landed = 1 enriched", 1)
    take_notes(run)
    assert run.note == "orders: 1 landed = 1 enriched"


@pytest.mark.parametrize(
    ("lag", "text"),
    [(None, ""), (0, ", up to date"), (1, ", 1 commit behind"), (2, ", 2 commits behind")],
)
def test_a_task_tells_what_its_table_holds(lag: int | None, text: str) -> None:
    assert (
        line_of({"table": "silver.users", "rows": 2000, "version": 3, "lag": lag}) == f"silver.users: 2,000 rows{text}"
    )
