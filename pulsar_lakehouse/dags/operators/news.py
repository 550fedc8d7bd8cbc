"""Whether a run of the pipeline has anything to do, without Spark."""

import logging

from airflow.sdk import get_current_context

from pulsar_lakehouse.dags.operators.notes import OF_TASK
from pulsar_lakehouse.dags.operators.tasks import failure, is_requested
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.settings import load_settings


def has_news() -> bool:
    """Whether the run has anything to do, which the log and the note of the task say.

    A run that somebody asked for always has. Fails with one line if the broker does not say.
    """
    from pulsar_lakehouse.jobs.new_data import Kind, Reason, reasons

    context, log = get_current_context(), logging.getLogger(__name__)
    try:
        reason = next(reasons(load_settings()), None)  # asked in any case: without a broker, no step need start
    except LakehouseError as error:
        log.error("lakehouse: %s", error)
        raise failure(f"lakehouse: {error}", error.exit_code) from None
    if is_requested(context):
        reason = Reason(Kind.REQUESTED, "somebody has asked for this run")
    line = f"{reason.kind.capitalize()}: {reason.line}" if reason else "Nothing new: the rest of this run is skipped"
    log.info(line)
    context["ti"].xcom_push(key=OF_TASK, value=line)
    return reason is not None
