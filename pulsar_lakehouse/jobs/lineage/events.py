"""The events of a step's run, in OpenLineage's format."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version

import pyspark
from openlineage.client.constants import DEFAULT_NAMESPACE_NAME
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    error_message_run,
    job_type_job,
    parent_run,
    processing_engine_run,
    set_producer,
    sql_job,
)

from pulsar_lakehouse.jobs.lineage.datasets import Named, Schemas, read_by, written_by
from pulsar_lakehouse.jobs.lineage.flows import Flow
from pulsar_lakehouse.settings import Settings

set_producer(f"urn:pulsar-lakehouse:{version('pulsar-lakehouse')}")


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a run has done until now: rows that it has read, and written by table, and why it failed, if it did."""

    read: int | None = None
    written: Mapping[str, int] = field(default_factory=dict)
    schemas: Schemas = field(default_factory=dict)
    """The columns of tables that it reads and writes."""
    failure: str = ""


def run_event(
    settings: Settings, flow: Flow, state: str, *, run_id: str, at: datetime, names: Named, done: Done
) -> RunEvent:
    """An event of a run: it starts, or is `COMPLETE`, or ends by `FAIL` or `ABORT`."""
    return RunEvent(
        eventType=RunState(state),
        eventTime=at.isoformat(),
        run=Run(runId=run_id, facets=_run_facets(done)),
        job=Job(
            namespace=os.environ.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE_NAME,
            name=flow.step,
            facets=_job_facets(flow),
        ),
        inputs=read_by(settings, flow, names, done.schemas, done.read),
        outputs=written_by(settings, flow, names, done.schemas, done.written),
    )


def _run_facets(done: Done) -> dict[str, RunFacet]:
    engine = processing_engine_run.ProcessingEngineRunFacet(version=pyspark.__version__, name="Spark")
    facets: dict[str, RunFacet] = {"processing_engine": engine}
    if parent := _parent():
        facets["parent"] = parent
    if done.failure:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=done.failure, programmingLanguage="PYTHON"
        )
    return facets


def _parent() -> parent_run.ParentRunFacet | None:
    """The run that started this process, such as one of an Airflow task, if the environment names it."""
    parent, top = _named_run("OPENLINEAGE_PARENT_ID"), _named_run("OPENLINEAGE_ROOT_PARENT_ID")
    if parent is None:
        return None
    namespace, name, run_id = parent
    root = None
    if top is not None:
        job = parent_run.RootJob(namespace=top[0], name=top[1])
        root = parent_run.Root(run=parent_run.RootRun(runId=top[2]), job=job)
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=run_id), job=parent_run.Job(namespace=namespace, name=name), root=root
    )


def _named_run(variable: str) -> tuple[str, str, str] | None:
    """The namespace, the job and the id of a run: `NAMESPACE/JOB/ID`."""
    namespace, _, rest = os.environ.get(variable, "").partition("/")
    name, _, run_id = rest.rpartition("/")
    return (namespace, name, run_id) if namespace and name and run_id else None


def _job_facets(flow: Flow) -> dict[str, JobFacet]:
    kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="PULSAR_LAKEHOUSE", jobType="JOB")
    facets: dict[str, JobFacet] = {"jobType": kind}
    if flow.sql:
        facets["sql"] = sql_job.SQLJobFacet(query=flow.sql, dialect="spark")
    return facets
