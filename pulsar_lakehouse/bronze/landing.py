"""Land a topic: append every message, unchanged, to the topic's bronze table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pulsar_lakehouse.bronze.compaction import COMPACTED, note_of_compacted
from pulsar_lakehouse.bronze.losses import find_losses, landed_offsets, refusal_of
from pulsar_lakehouse.bronze.partitions import CREATED, GONE, creation_times, held_by, source_options
from pulsar_lakehouse.bronze.pulsar import PulsarDataSource
from pulsar_lakehouse.bronze.pulsar.columns import SCHEMA, TIMESTAMP
from pulsar_lakehouse.bronze.pulsar.options import EARLIEST
from pulsar_lakehouse.bronze.pulsar.planning import Plan
from pulsar_lakehouse.bronze.reach import Reach, told_of_gone
from pulsar_lakehouse.bronze.schemas import keep_schemas
from pulsar_lakehouse.checkpoints.batches import begun_batch
from pulsar_lakehouse.checkpoints.soundness import sound_checkpoint
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, PermanentError
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake


def land(lake: Lake, reach: Reach) -> DataStreamWriter:
    """The stream from a topic to its bronze table. Without a checkpoint, it continues after the last landed entry.

    Of several topics, it leaves out those that can't land, as `reach` says. Raises PermanentError if the topic was
    recreated after something landed, and BrokerError if the broker does not answer.
    """
    topic, plan = reach.topic, reach.plan()
    if not plan.options.topics:
        raise BrokerError(f"{topic.name}: no topic matches {topic.own_name} now")
    is_new = create_bronze_table(lake, topic, plan)
    if not is_new:
        keep_created(lake, topic, plan)
    say_what_is_unusual(topic, plan, is_new=is_new)
    checkpoint = _checkpoint(lake, topic, plan)
    start = _starting_position(lake, topic, checkpoint, is_new=is_new)
    messages = _read(lake, source_options(lake.settings, reach.endpoint, topic, plan.options.topics), start)
    return _write(lake, topic, messages.transform(to_bronze), checkpoint)


def bronze_table(topic: Topic) -> Table:
    return Table(
        name=topic.bronze_table,
        columns=f"{SCHEMA}, landed_at TIMESTAMP, publish_date DATE",
        partition_by=("publish_date",),
        properties={
            "delta.dataSkippingStatsColumns": "partition,ledger_id,entry_id,event_time,publish_time",
            "delta.appendOnly": "true",
        },
    )


def create_bronze_table(lake: Lake, topic: Topic, plan: Plan) -> bool:
    """Create the topic's table unless it exists, and return whether it was created. It knows the plan's partitions."""
    table, held = bronze_table(topic), held_by(plan)
    made = {CREATED: json.dumps(creation_times(held), sort_keys=True)} | note_of_compacted(held, held)
    return lake.create(replace(table, properties={**table.properties, **made}))


def keep_created(lake: Lake, topic: Topic, plan: Plan) -> None:
    """Record the creation times of partitions that have none in the table's properties, and which are compacted.

    Raises PermanentError if a partition was recreated since its time was recorded.
    """
    table, held = lake.table(topic.bronze_table), held_by(plan)
    recorded = table.delta_property(CREATED)
    kept, found = json.loads(recorded or "{}"), creation_times(held)
    if any(found.get(name, time) != time for name, time in kept.items()) or not kept.items() & found.items():
        for loss in find_losses(lake.settings, topic, plan, kept):
            raise PermanentError(refusal_of(topic, loss))
    if new := found.keys() - kept.keys():
        # A table without the property is of an early release: its partitions have landed.
        compacted = note_of_compacted(held, new, table.delta_property(COMPACTED)) if recorded else {}
        table.set_properties({CREATED: json.dumps(found | kept, sort_keys=True)} | compacted)


def say_what_is_unusual(topic: Topic, plan: Plan, *, is_new: bool) -> None:
    """Say of which partitions landing can't simply read all that was ever sent."""
    for partition in plan.missing:
        CONSOLE.say(f"{topic.name}: {partition} is not there, perhaps because it was idle: landing creates it again")
    if is_new and (compacted := [name for name, held in plan.held.items() if held.compacted]):
        what = f"{len(compacted)} partitions are" if len(compacted) > 1 else f"{compacted[0]} is"
        why = "of messages that the broker has deleted, the last one of each key lands"
        CONSOLE.say(f"{topic.name}: {what} compacted: {why}")


def _checkpoint(lake: Lake, topic: Topic, plan: Plan) -> str:
    """The path of the checkpoint. It is removed if it is not sound, or if its batch can't be read again.

    That is one that has begun, but not ended, and has messages of topics that are left out now.
    """
    path = sound_checkpoint(lake, topic.bronze_table, appends_to=topic.bronze_table)
    if topic.is_several and (batch := begun_batch(lake.settings, topic.bronze_table)):
        start, end = map(json.loads, batch)
        if any(position != start.get(name) and not plan.reads(name) for name, position in end.items()):
            lake.files.delete(path)
    return path


def _starting_position(lake: Lake, topic: Topic, checkpoint: str, *, is_new: bool) -> str:
    """Where the stream begins if its checkpoint has no offsets: after what has landed."""
    # Spark creates the folder before it plans the first batch, so the folder alone proves nothing.
    if is_new or lake.files.exists(f"{checkpoint}/offsets/[0-9]*"):
        return EARLIEST
    return json.dumps(landed_offsets(lake.settings, topic).to_json())


def _read(lake: Lake, source: Mapping[str, str], start: str) -> DataFrame:
    lake.spark.dataSource.register(PulsarDataSource)
    reader = lake.spark.readStream.format("pulsar").options(**source, startingPosition=start)
    return reader.option("maxBytesPerTrigger", lake.settings.run.max_bytes_per_batch).load()


def to_bronze(messages: DataFrame) -> DataFrame:
    """Adds `landed_at`, the current time, and `publish_date`, the day of `publish_time`."""
    return messages.withColumns({"landed_at": F.current_timestamp(), "publish_date": F.to_date("publish_time")})


def arrow_to_bronze(messages: pa.Table) -> pa.Table:
    """The same for messages in Arrow."""
    landed_at = pa.repeat(pa.scalar(datetime.now(UTC), TIMESTAMP), messages.num_rows)
    publish_date = messages["publish_time"].cast(pa.date32())
    return messages.append_column("landed_at", landed_at).append_column("publish_date", publish_date)


def _write(lake: Lake, topic: Topic, rows: DataFrame, checkpoint: str) -> DataStreamWriter:
    return (
        rows.writeStream.format("delta")
        .option("path", lake.settings.table_path(topic.bronze_table))
        .option("checkpointLocation", checkpoint)
    )


def has_landed(lake: Lake, reach: Reach) -> None:
    """What a topic needs once it has landed: its messages may have made the subscription, and have new schemas."""
    reach.has_landed()
    for one in reach.topics:
        keep_schemas(lake, one, reach.endpoint)
    if reach.topic.is_several:
        tell_gone(lake, reach.topic, reach.gone)


def tell_gone(lake: Lake, topic: Topic, gone: Sequence[str]) -> None:
    """Say once which topics are not there any more. The table keeps what was said."""
    table = lake.table(topic.bronze_table)
    said = json.loads(table.delta_property(GONE) or "[]")
    for name in gone:
        if name not in said:
            CONSOLE.say(f"{topic.name}: {told_of_gone(name)}")
    if said != list(gone):
        table.set_properties({GONE: json.dumps(gone)})
