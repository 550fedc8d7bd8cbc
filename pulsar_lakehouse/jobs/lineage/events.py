"""The events of a step's run, in OpenLineage's format, under the names that it gives to topics, tables and sinks."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from urllib.parse import urlsplit

import pyspark
from openlineage.client.constants import DEFAULT_NAMESPACE_NAME
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    JobFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    set_producer,
    sql_job,
    symlinks_dataset,
)
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql.types import StructType

from pulsar_lakehouse.jobs.lineage.flows import Flow
from pulsar_lakehouse.jobs.lineage.origins import Origin
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import has_tables, source_path

Named = Mapping[str, tuple[str, str]]
"""By what a step reads or writes: the namespace and the name of the dataset."""

set_producer(f"urn:pulsar-lakehouse:{version('pulsar-lakehouse')}")


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a run has done until now: rows that it has read, and written by table, and why it failed, if it did."""

    read: int | None = None
    """All of them from the first dataset that the step reads."""
    written: Mapping[str, int] = field(default_factory=dict)
    schemas: Mapping[str, StructType] = field(default_factory=dict)
    """The columns of tables that it reads and writes."""
    failure: str = ""


def names_of(settings: Settings, flow: Flow) -> Named:
    return {name: named(settings, name) for name in (*flow.reads, *flow.writes)}


def named(settings: Settings, name: str) -> tuple[str, str]:
    """The namespace and the name of a dataset, as https://openlineage.io/docs/spec/naming has them."""
    kind, _, short = name.partition(" ")
    if kind == "topic":
        full = short.removeprefix("persistent://") if "://" in short else f"{settings.pulsar.namespace}/{short}"
        return endpoint(settings).service_url.partition(",")[0].rstrip("/"), full
    if kind == "postgres":
        url = settings.postgres.url
        known = conninfo_to_dict(url.get_secret_value() if url else "")
        host, port, database = known.get("host") or "localhost", known.get("port") or 5432, known.get("dbname")
        return f"postgres://{host}:{port}", f"{database}.{short if '.' in short else f'public.{short}'}"
    if kind in ("files", "delta"):
        where = source_path(settings, short)
        parts = urlsplit(where)
        return ("file", where) if not parts.scheme else (f"s3://{parts.netloc}", parts.path.strip("/"))
    path = settings.table_path(name)
    if not has_tables(settings):
        return "file", path
    parts = urlsplit(path)
    return f"s3://{parts.netloc}", parts.path.strip("/")


def run_event(
    settings: Settings, flow: Flow, state: str, *, run_id: str, at: datetime, names: Named, done: Done
) -> RunEvent:
    """An event of a run: it starts, or is `COMPLETE`, or ends by `FAIL` or `ABORT`."""
    inputs, outputs = [], []
    is_of_first = len([name for name in flow.reads if " " in name]) < 2  # nobody counts several topics apart
    for name in flow.reads:
        read: dict[str, InputDatasetFacet] = {}
        if done.read is not None and name == flow.reads[0] and is_of_first:
            statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=done.read)
            read["inputStatistics"] = statistics
        facets = _facets(settings, flow, name, done)
        inputs.append(InputDataset(*names[name], facets=facets, inputFacets=read))
    for name in flow.writes:
        written: dict[str, OutputDatasetFacet] = {}
        if name in done.written:
            rows = done.written[name]
            written["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows)
        facets = _facets(settings, flow, name, done)
        if done.schemas and flow.columns.get(name):
            facets["columnLineage"] = _column_lineage(names, flow.columns[name])
        outputs.append(OutputDataset(*names[name], facets=facets, outputFacets=written))
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE_NAME
    return RunEvent(
        eventType=RunState(state),
        eventTime=at.isoformat(),
        run=Run(runId=run_id, facets=_run_facets(done)),
        job=Job(namespace=namespace, name=flow.step, facets=_job_facets(flow)),
        inputs=inputs,
        outputs=outputs,
    )


def _run_facets(done: Done) -> dict[str, RunFacet]:
    engine = processing_engine_run.ProcessingEngineRunFacet(version=pyspark.__version__, name="Spark")
    facets: dict[str, RunFacet] = {"processing_engine": engine}
    parent, top = _named_run("OPENLINEAGE_PARENT_ID"), _named_run("OPENLINEAGE_ROOT_PARENT_ID")
    if parent is not None:  # the run that started this process, such as one of an Airflow task
        run_id, job = parent
        root = top and parent_run.Root(run=parent_run.RootRun(top[0]), job=parent_run.RootJob(*top[1]))
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(run_id), job=parent_run.Job(*job), root=root or None
        )
    if done.failure:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(done.failure, programmingLanguage="PYTHON")
    return facets


def _named_run(variable: str) -> tuple[str, tuple[str, str]] | None:
    """The id of a run, and the namespace and name of its job, from a variable with `NAMESPACE/JOB/ID`."""
    namespace, _, rest = os.environ.get(variable, "").partition("/")
    name, _, run_id = rest.rpartition("/")
    return (run_id, (namespace, name)) if namespace and name and run_id else None


def _job_facets(flow: Flow) -> dict[str, JobFacet]:
    kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="PULSAR_LAKEHOUSE", jobType="JOB")
    query = {"sql": sql_job.SQLJobFacet(query=flow.sql, dialect="spark")} if flow.sql else {}
    return {"jobType": kind, **query}


def _facets(settings: Settings, flow: Flow, name: str, done: Done) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if " " not in name:
        root = settings.warehouse_root.replace("s3a://", "s3://")
        table = symlinks_dataset.Identifier(namespace=root, name=name, type="TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[table])
    if fields := list(_fields(flow, name, done.schemas)):
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    return facets


def _fields(
    flow: Flow, name: str, schemas: Mapping[str, StructType]
) -> Iterator[schema_dataset.SchemaDatasetFacetFields]:
    """The columns of a dataset. A payload has the fields that the topic declares, and a sink those of its table."""
    if flow.payload is not None and " " in name:
        yield from _of_struct(flow.payload if schemas else StructType())
        return
    table = flow.reads[0] if " " in name else name
    for each in _of_struct(schemas.get(table, StructType())):
        if flow.payload is not None and name.startswith("bronze.") and each.name == "payload":
            each.fields = list(_of_struct(flow.payload))
        yield each


def _of_struct(columns: StructType) -> Iterator[schema_dataset.SchemaDatasetFacetFields]:
    """The columns. The type of a struct is without its fields, which are listed apart."""
    for each in columns:
        is_struct = isinstance(each.dataType, StructType)
        nested = list(_of_struct(each.dataType)) if isinstance(each.dataType, StructType) else []
        kind = "struct" if is_struct else each.dataType.simpleString()
        yield schema_dataset.SchemaDatasetFacetFields(name=each.name, type=kind, fields=nested)


def _column_lineage(names: Named, made: Mapping[str, Origin]) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    fields = {}
    for column, origin in made.items():
        subtype = "AGGREGATION" if origin.is_aggregate else "TRANSFORMATION" if origin.sql else "IDENTITY"
        how = column_lineage_dataset.Transformation(type="DIRECT", subtype=subtype, description=origin.sql or None)
        inputs = [
            column_lineage_dataset.InputField(*names[name], field, transformations=[how])
            for name, field in origin.columns
        ]
        if inputs:
            fields[column] = column_lineage_dataset.Fields(inputFields=inputs)
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)
