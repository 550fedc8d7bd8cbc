"""Land a topic: every message, as it came, appended to the topic's bronze table."""

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bronze.pulsar import SCHEMA, PulsarDataSource
from bronze.pulsar.options import EARLIEST
from lakehouse.checkpoints import sound_checkpoint
from lakehouse.endpoint import Endpoint
from lakehouse.settings import Settings
from lakehouse.tables import Table, create_table, path_exists, read_table
from lakehouse.topics import Topic


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


def to_bronze(messages: DataFrame) -> DataFrame:
    """The messages as the source gives them, with the day they were published and the time they landed."""
    return messages.withColumns(
        {"landed_at": F.current_timestamp(), "publish_date": F.to_date("publish_time")},
    )


def landed_offsets(bronze: DataFrame) -> dict[str, str]:
    """The last entry landed of each partition, as the source's offsets."""
    last = bronze.groupBy("topic", "partition").agg(F.max(F.struct("ledger_id", "entry_id")).alias("end"))
    return {
        f"{row.topic}-partition-{row.partition}": f"{row.end.ledger_id}:{row.end.entry_id}" for row in last.collect()
    }


def source_options(settings: Settings, endpoint: Endpoint) -> dict[str, str]:
    """How the Pulsar source reaches the broker."""
    pulsar = settings.pulsar
    options = {"serviceUrl": endpoint.service_url, "adminUrl": endpoint.admin_url}
    if pulsar.token:
        options["token"] = pulsar.token.get_secret_value()
    if pulsar.tls_trust_certs:
        options["tlsTrustCerts"] = str(pulsar.tls_trust_certs)
    return options | {"tlsValidateHostname": str(pulsar.tls_validate_hostname).lower()}


def land(spark: SparkSession, settings: Settings, topic: Topic, endpoint: Endpoint) -> DataStreamWriter:
    """The stream from `topic` to its bronze table. Without a checkpoint, it goes on after the last entry landed."""
    spark.dataSource.register(PulsarDataSource)
    table = bronze_table(topic)
    is_new = create_table(spark, settings, table)
    checkpoint = sound_checkpoint(spark, settings, table.name, appends_to=table.name)
    # The folder alone says nothing: it is made before the first batch is planned.
    known = is_new or path_exists(spark, f"{checkpoint}/offsets/[0-9]*")
    start = EARLIEST if known else json.dumps(landed_offsets(read_table(spark, settings, table.name)))
    messages = (
        spark.readStream.format("pulsar")
        .options(**source_options(settings, endpoint))
        .option("topic", f"{settings.pulsar.namespace}/{topic.name}")
        .option("subscription", topic.subscription)
        .option("startingPosition", start)
        .option("maxBytesPerTrigger", settings.run.max_bytes_per_batch)
        .load()
    )
    return (
        messages.transform(to_bronze)
        .writeStream.queryName(f"land {topic.name}")
        .format("delta")
        .option("path", settings.table_path(table.name))
        .option("checkpointLocation", checkpoint)
    )
