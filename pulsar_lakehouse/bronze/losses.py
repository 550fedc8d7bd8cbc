"""Detect messages that the broker lost before they landed, and record losses that somebody accepts."""

import getpass
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.erasures import ERASURES, erased_messages
from pulsar_lakehouse.bronze.pulsar.admin import Admin, Held
from pulsar_lakehouse.bronze.pulsar.losses import Loss, find_loss
from pulsar_lakehouse.bronze.pulsar.options import NoAnswerError, Options, PulsarSourceError
from pulsar_lakehouse.bronze.pulsar.positions import BEGINNING, Offsets
from pulsar_lakehouse.checkpoints.batches import last_batch
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import PermanentError, UnreachableError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import stored_table, table_names

LOSSES = Table(
    name="bronze.losses",
    columns="""
        topic STRING, partition INT, after_ledger_id BIGINT, after_entry_id BIGINT, ledger_id BIGINT, entry_id BIGINT,
        entries BIGINT, reason STRING, accepted_at TIMESTAMP, accepted_by STRING
    """,
)
"""Accepted losses: the entries after the last landed one, up to `ledger_id` and `entry_id`.

`entries` is the least number of entries that were lost.
"""

CREATED = "lakehouse.partitions"
"""The table property with the creation time of each partition, as JSON. It shows whether a topic was recreated."""


def source_options(settings: Settings, endpoint: Endpoint, topic: Topic) -> dict[str, str]:
    """The options of the Pulsar source: how to reach the broker, and what to read."""
    pulsar = settings.pulsar
    options = {"serviceUrl": endpoint.service_url, "adminUrl": endpoint.admin_url}
    if pulsar.token:
        options["token"] = pulsar.token.get_secret_value()
    if pulsar.tls_trust_certs:
        options["tlsTrustCerts"] = str(pulsar.tls_trust_certs)
    options["tlsValidateHostname"] = str(pulsar.tls_validate_hostname).lower()
    return options | {"topic": f"{pulsar.namespace}/{topic.name}", "subscription": topic.subscription}


def ask_broker(settings: Settings, endpoint: Endpoint, topic: Topic) -> dict[str, Held]:
    """What the broker holds of each partition, by the name that bronze uses.

    Raises UnreachableError if the broker does not answer, and PermanentError if it refuses or has no such topic.
    """
    options = Options.parse(source_options(settings, endpoint, topic))
    admin = Admin(options)
    try:
        return {
            partition_in_bronze(each): admin.dated_ledgers(each)
            for name in options.topics
            for each in admin.partitions(name)
        }
    except NoAnswerError as error:
        raise UnreachableError(str(error)) from error
    except PulsarSourceError as error:
        raise PermanentError(cause_of(error)) from error


def creation_dates(held: Mapping[str, Held]) -> dict[str, str]:
    return {name: each.created for name, each in held.items() if each.created}


def landed_offsets(bronze: DataFrame) -> dict[str, str]:
    """The last landed entry of each partition, as offsets of the source."""
    last = bronze.groupBy("topic", "partition").agg(F.max(F.struct("ledger_id", "entry_id")).alias("end"))
    return {
        f"{row.topic}-partition-{row.partition}": f"{row.end.ledger_id}:{row.end.entry_id}" for row in last.collect()
    }


def offsets_to_go_on_after(lake: Lake, topic: Topic) -> dict[str, str]:
    """The last entry of each partition that landed, even if it was erased since, or was accepted as lost."""
    position = ("topic", "partition", "ledger_id", "entry_id")
    found = lake.table(topic.bronze_table).read().select(*position)
    if lake.table(ERASURES.name).exists():
        found = found.union(erased_messages(lake, topic.bronze_table).select(*position))
    if lake.table(LOSSES.name).exists():
        accepted = lake.table(LOSSES.name).read()
        found = found.union(accepted.where(F.col("topic") == _full_name(lake.settings, topic)).select(*position))
    return landed_offsets(found)


def keep_created(lake: Lake, topic: Topic, held: Mapping[str, Held]) -> None:
    """Record the creation times of partitions that have none in the table's properties.

    Raises PermanentError if a partition was recreated since its time was recorded.
    """
    known, found = _known(lake, topic), creation_dates(held)
    if any(found.get(name, date) != date for name, date in known.items()):
        for loss in _find(lake, topic, held, known):
            raise PermanentError(_refusal(topic, loss))
    if found.keys() - known.keys():
        _keep(lake, topic, found | known)


def accept_losses(lake: Lake, topic: Topic, endpoint: Endpoint) -> list[Loss]:
    """Record the losses of a topic in `bronze.losses`, so that landing can continue with what is left; returns them.

    Raises PermanentError if landing could not continue after a loss, or if the broker refuses or has no such topic,
    and BrokerError if the broker does not answer.
    """
    if not lake.table(topic.bronze_table).exists():
        return []
    held, known = ask_broker(lake.settings, endpoint, topic), _known(lake, topic)
    losses = _find(lake, topic, held, known)
    for loss in losses:
        if not loss.can_resume:
            raise PermanentError(_refusal(topic, loss))
    if losses:
        lake.create(LOSSES)
        now, user = datetime.now(UTC), getpass.getuser()
        rows = [
            (
                _full_name(lake.settings, topic),
                _index(loss),
                *loss.after,
                *loss.resume,
                loss.entries,
                loss.reason,
                now,
                user,
            )
            for loss in losses
        ]
        once = ["topic", "partition", "ledger_id", "entry_id"]
        lake.table(LOSSES.name).append_missing(lake.spark.createDataFrame(rows, LOSSES.ddl), on=once)
        _keep(lake, topic, known | creation_dates(held))
        # Without a checkpoint, landing continues after the landed entries and the recorded losses.
        lake.files.delete(lake.settings.checkpoint_path(topic.bronze_table))
    return losses


def refusal(settings: Settings, topic: Topic, endpoint: Endpoint) -> str | None:
    """Why landing would refuse to continue; None if it would not refuse.

    Does not need Spark. Raises UnreachableError if the broker does not answer.
    """
    try:
        table = stored_table(settings, topic.bronze_table)
    except DeltaError:  # there is no table, or its creation was cut off
        return None
    try:
        held = ask_broker(settings, endpoint, topic)
    except PermanentError as error:
        return str(error)
    known = json.loads(table.metadata().configuration.get(CREATED, "{}"))
    landed = _committed(settings, topic)
    if landed is None:
        landed = _landed_without_spark(settings, topic)
    losses = _compare(topic, held, Offsets.from_json(landed), known)
    return _refusal(topic, losses[0]) if losses else None


def accepted_losses(settings: Settings) -> dict[str, tuple[int, int]]:
    """By full topic name: the number of accepted losses, and the least number of entries lost. Does not need Spark."""
    if LOSSES.name not in table_names(settings):
        return {}
    found = query(
        settings, f"SELECT topic, count(*), sum(entries)::BIGINT FROM {LOSSES.name} GROUP BY topic ORDER BY 1"
    )
    return {topic: (count, entries) for topic, count, entries in found.fetchall()}


def _find(lake: Lake, topic: Topic, held: Mapping[str, Held], known: Mapping[str, str]) -> list[Loss]:
    landed = _committed(lake.settings, topic)
    if landed is None:
        landed = offsets_to_go_on_after(lake, topic)
    return _compare(topic, held, Offsets.from_json(landed), known)


def _compare(topic: Topic, held: Mapping[str, Held], landed: Offsets, known: Mapping[str, str]) -> list[Loss]:
    return [
        loss
        for name in sorted(held.keys() | landed.keys() | known.keys())
        if (loss := find_loss(name, landed.get(name, BEGINNING), held.get(name), topic.subscription, known.get(name)))
    ]


def _committed(settings: Settings, topic: Topic) -> dict[str, str] | None:
    """Where the last landed batch ended, by the checkpoint; None if there is no checkpoint, or if it is torn."""
    batch = last_batch(settings, topic.bronze_table)
    if batch is None:
        return None
    try:
        offsets = json.loads(batch.offsets.splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return {partition_in_bronze(name): str(position) for name, position in offsets.items()}


def _landed_without_spark(settings: Settings, topic: Topic) -> dict[str, str]:
    position = "topic, partition, struct_pack(ledger := ledger_id, entry := entry_id) AS position"
    found = f'SELECT {position} FROM bronze."{topic.name}"'
    tables, values = list(table_names(settings)), {}
    if LOSSES.name in tables:
        found += f" UNION ALL SELECT {position} FROM {LOSSES.name} WHERE topic = $topic"
        values["topic"] = _full_name(settings, topic)
    if ERASURES.name in tables:
        erased = f"SELECT unnest(messages, max_depth := 2) FROM {ERASURES.name}"
        found += f" UNION ALL SELECT {position} FROM ({erased}) WHERE bronze = $bronze"
        values["bronze"] = topic.bronze_table
    last = f"SELECT topic, partition, max(position) FROM ({found}) GROUP BY ALL"
    rows = query(settings, last, values).fetchall()
    return {f"{name}-partition-{index}": f"{at['ledger']}:{at['entry']}" for name, index, at in rows}


def _known(lake: Lake, topic: Topic) -> dict[str, str]:
    dates: dict[str, str] = json.loads(lake.table(topic.bronze_table).delta_property(CREATED) or "{}")
    return dates


def _keep(lake: Lake, topic: Topic, dates: Mapping[str, str]) -> None:
    lake.table(topic.bronze_table).set_properties({CREATED: json.dumps(dates, sort_keys=True)})


def _refusal(topic: Topic, loss: Loss) -> str:
    if loss.can_resume:
        return f"{loss}; `lakehouse land {topic.name} --accept-loss` writes that down and goes on"
    if not loss.exists:
        return (
            f"{loss}: create it again, with `lakehouse topics create` or, if the topic has only too few partitions, "
            "`pulsar-admin topics update-partitioned-topic`"
        )
    return f"{loss}: start again with another home, or restore what the broker had"


def _full_name(settings: Settings, topic: Topic) -> str:
    return f"persistent://{settings.pulsar.namespace}/{topic.name}"


def partition_in_bronze(partition: str) -> str:
    """A partition's name in bronze, where a topic without partitions has the partition 0."""
    return partition if re.search(r"-partition-\d+$", partition) else f"{partition}-partition-0"


def _index(loss: Loss) -> int:
    return int(loss.partition.rpartition("-")[2])
