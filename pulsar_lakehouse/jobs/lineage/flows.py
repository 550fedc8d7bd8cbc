"""What each step reads and writes, and from which columns each column is made: all of it from the declarations.

A field of a struct has a dotted name, such as `item.price`. So has a field of a payload: `payload.price`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.parsing import parsed
from pulsar_lakehouse.jobs.lineage.origins import PLACE, Origin, origin, origins_in_select
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.silver.entity import Entity

Names = Mapping[str, Sequence[str]]
"""The names of columns, by table."""
ADDED_IN_SILVER = ("sequence", "valid_from", "valid_until")


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A step. What it reads and writes is named as the graph of the pipeline names it, such as `topic orders`."""

    step: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    columns: Mapping[str, Mapping[str, Origin]] = field(default_factory=dict)
    """By what it writes: where its columns come from."""
    payload: StructType | None = None
    """The fields of the topic that it reads, or whose bronze table it reads."""
    sql: str = ""


def flows(pipeline: Pipeline) -> list[Flow]:
    """All steps of the pipeline, in their order."""
    names = column_names(pipeline)
    found = [
        *(landed(each.topic, each.origins) for each in pipeline.entities),
        *(landed(each.topic) for each in pipeline.enrichments),
        *map(merged, pipeline.entities),
        *map(enriched, pipeline.enrichments),
        *(refreshed(table, names) for table in pipeline.sql_tables),
        *(published(facts.gold_table, topic, names) for topic, facts in pipeline.published.items()),
    ]
    for table in pipeline.sql_tables:
        found += [published(table.name, table.topic, names)] if table.topic else []
        found += [sent_to_postgres(table, names)] if table.postgres else []
    return found


def column_names(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """By table of silver and gold: the names of its columns, as far as they are known without Spark."""
    names: dict[str, tuple[str, ...]] = {}
    for entity in pipeline.entities:
        names[entity.table.name] = names[entity.history.name] = (*entity.columns, "deleted_at", *ADDED_IN_SILVER)
    for facts in pipeline.enrichments:
        names[facts.gold_table] = tuple(enriched(facts).columns[facts.gold_table])
    for table in pipeline.sql_tables:
        names[table.name] = tuple(name for name in parsed(table.file, table.sql).named_selects if name != "*")
    return names


def landed(topic: Topic, origins: tuple[str, ...] = ()) -> Flow:
    """`origins` are what lands, by default the topic."""
    reads, bronze = origins or topic.origins, topic.bronze_table
    made = {f"payload.{name}": Origin(columns=tuple((each, name) for each in reads)) for name in topic.fields.names}
    step = f"land {topic.landing_name}"
    return Flow(step=step, reads=reads, writes=(bronze,), columns={bronze: made}, payload=topic.fields)


def merged(entity: Entity) -> Flow:
    tables = [entity.table.name, *([entity.history.name] if entity.keeps_history else [])]
    made = {name: origin(sql, entity.topic) for name, sql in entity.columns.items()}
    made["deleted_at"] = origin(entity.deleted_at, entity.topic)
    return Flow(
        step=f"merge {entity.name}",
        reads=(entity.topic.bronze_table,),
        writes=(*tables, MALFORMED.name),
        columns=dict.fromkeys(tables, made),
        payload=entity.topic.fields,
    )


def enriched(facts: Enrichment) -> Flow:
    bronze = facts.topic.bronze_table
    own = {name: origin(sql, facts.topic) for name, sql in facts.columns.items()}
    own["position"] = Origin(columns=tuple((bronze, name) for name in PLACE))
    own[facts.day] = Origin(columns=own[facts.event_time].columns, sql=f"to_date({facts.event_time})")
    looked_up = {}
    for lookup in facts.lookups:
        for name in (*lookup.entity.columns, "deleted_at"):
            looked_up[f"{lookup.name}.{name}"] = Origin(columns=((lookup.table, name),))
        if lookup.merged_into is not None:
            looked_up[lookup.merged] = Origin(columns=((lookup.table, lookup.key),), sql=lookup.merged_into)
    for match in facts.matches:
        for name in (*match.entity.columns, "deleted_at"):
            looked_up[f"{match.name}.{name}"] = Origin(columns=((match.table, name),))
    return Flow(
        step=f"enrich {facts.topic.name}",
        reads=(bronze, *facts.state_tables),
        writes=(*facts.places, MALFORMED.name),
        columns={name: {**own, **looked_up} if name == facts.gold_table else own for name in facts.places},
        payload=facts.topic.fields,
    )


def refreshed(table: SqlTable, names: Names) -> Flow:
    made, step = origins_in_select(table, names), f"refresh {table.name}"
    return Flow(step=step, reads=table.sources, writes=(table.name,), columns={table.name: made}, sql=table.sql)


def published(table: str, topic: str, names: Names) -> Flow:
    """The publication of a gold table to a topic."""
    return _copied(table, f"topic {topic}", f"publish {topic}", names)


def sent_to_postgres(table: SqlTable, names: Names) -> Flow:
    return _copied(table.name, f"postgres {table.postgres}", f"publish postgres {table.postgres}", names)


def _copied(table: str, sink: str, step: str, names: Names) -> Flow:
    same = {column: Origin(columns=((table, column),)) for column in names.get(table, ())}
    return Flow(step=step, reads=(table,), writes=(sink,), columns={sink: same})
