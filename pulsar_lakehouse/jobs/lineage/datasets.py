"""The names that OpenLineage gives to topics, tables and sinks, and the facets of each."""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    column_lineage_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    symlinks_dataset,
)
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql.types import DataType, StructType

from pulsar_lakehouse.jobs.lineage.flows import Flow
from pulsar_lakehouse.jobs.lineage.origins import Origin
from pulsar_lakehouse.local.broker import endpoint
from pulsar_lakehouse.settings import Settings, is_remote

Schemas = Mapping[str, StructType]


Named = Mapping[str, tuple[str, str]]
"""By what a step reads or writes: the namespace and the name of the dataset."""


def names_of(settings: Settings, flow: Flow) -> Named:
    return {name: named(settings, name) for name in (*flow.reads, *flow.writes)}


def read_by(settings: Settings, flow: Flow, names: Named, schemas: Schemas, rows: int | None) -> list[InputDataset]:
    """What a step reads. `rows` is how many it has read, all of them from the first dataset."""
    found = []
    for name in flow.reads:
        counted: dict[str, InputDatasetFacet] = {}
        if rows is not None and name == flow.reads[0]:
            counted["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=rows)
        namespace, path = names[name]
        facets = _facets(settings, flow, name, schemas)
        found.append(InputDataset(namespace=namespace, name=path, facets=facets, inputFacets=counted))
    return found


def written_by(
    settings: Settings, flow: Flow, names: Named, schemas: Schemas, rows: Mapping[str, int]
) -> list[OutputDataset]:
    """What a step writes. `rows` is how many rows it has written, by table."""
    found = []
    for name in flow.writes:
        counted: dict[str, OutputDatasetFacet] = {}
        if name in rows:
            statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows[name])
            counted["outputStatistics"] = statistics
        facets = _facets(settings, flow, name, schemas)
        if schemas and flow.columns.get(name):
            facets["columnLineage"] = _column_lineage(names, flow.columns[name])
        namespace, path = names[name]
        found.append(OutputDataset(namespace=namespace, name=path, facets=facets, outputFacets=counted))
    return found


def named(settings: Settings, name: str) -> tuple[str, str]:
    """The namespace and the name of a dataset, as https://openlineage.io/docs/spec/naming has them."""
    kind, _, short = name.rpartition(" ")
    if kind == "topic":
        return endpoint(settings).service_url.partition(",")[0].rstrip("/"), f"{settings.pulsar.namespace}/{short}"
    if kind == "postgres":
        url = settings.postgres.url
        known = conninfo_to_dict(url.get_secret_value() if url else "")
        host, port, database = known.get("host") or "localhost", known.get("port") or 5432, known.get("dbname")
        table = short if "." in short else f"public.{short}"
        return f"postgres://{host}:{port}", f"{database}.{table}"
    path = settings.table_path(name)
    if is_remote(path):
        parts = urlsplit(path)
        return f"s3://{parts.netloc}", parts.path.strip("/")
    return "file", path


def _facets(settings: Settings, flow: Flow, name: str, schemas: Schemas) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if " " not in name:
        root = settings.warehouse_root.replace("s3a://", "s3://")
        table = symlinks_dataset.Identifier(namespace=root, name=name, type="TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[table])
    if fields := list(_fields(flow, name, schemas)):
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    return facets


def _fields(flow: Flow, name: str, schemas: Schemas) -> Iterator[schema_dataset.SchemaDatasetFacetFields]:
    """The columns of a dataset. A payload has the fields that the topic declares, and a sink those of its table."""
    if flow.payload is not None and name.startswith("topic "):
        yield from _of_struct(flow.payload if schemas else StructType())
        return
    table = flow.reads[0] if " " in name else name
    for each in _of_struct(schemas.get(table, StructType())):
        if flow.payload is not None and name.startswith("bronze.") and each.name == "payload":
            each.fields = list(_of_struct(flow.payload))
        yield each


def _of_struct(columns: StructType) -> Iterator[schema_dataset.SchemaDatasetFacetFields]:
    for each in columns:
        nested = list(_of_struct(each.dataType)) if isinstance(each.dataType, StructType) else []
        yield schema_dataset.SchemaDatasetFacetFields(name=each.name, type=_type(each.dataType), fields=nested)


def _type(kind: DataType) -> str:
    """The type without the fields of a struct, which are listed apart."""
    if isinstance(kind, StructType):
        return "struct"
    return kind.simpleString()


def _column_lineage(names: Named, made: Mapping[str, Origin]) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    fields = {}
    for column, origin in made.items():
        subtype = "AGGREGATION" if origin.is_aggregate else "TRANSFORMATION" if origin.sql else "IDENTITY"
        how = column_lineage_dataset.Transformation(type="DIRECT", subtype=subtype, description=origin.sql or None)
        inputs = []
        for name, field in origin.columns:
            namespace, path = names[name]
            inputs.append(
                column_lineage_dataset.InputField(namespace=namespace, name=path, field=field, transformations=[how])
            )
        if inputs:
            fields[column] = column_lineage_dataset.Fields(inputFields=inputs)
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields)
