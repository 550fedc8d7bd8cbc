"""Reads the real tables in the oracle's form, without Spark, and gives tests their own homes and topics."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.topic_admin import create_topics
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.session import SHORT_RUN
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import existing_tables, is_stored, stored_table
from tests.oracle import Message, Oracle, Position, RowPosition, by_position, by_version, landed
from tests.oracle_lookups import Row
from tests.shop import TOPICS

CLOCK = ("quarantined_at", "waiting_since", "found_at", "attempts")
"""Columns that depend on when and how often a step ran. The oracle does not have them."""


def own_home(settings: Settings, home: Path) -> Settings:
    return settings.model_copy(update={"home": home})


def own_topics(
    settings: Settings, endpoint: Endpoint, home: Path, topics: Sequence[Topic] = TOPICS, *, tenant: str = "public"
) -> Settings:
    """Settings with their own home, and their own topics in the shared broker, which are created."""
    pulsar = settings.pulsar.model_copy(
        update={
            "service_url": endpoint.service_url,
            "admin_url": endpoint.admin_url,
            "namespace": f"{tenant}/{home.name}",
        }
    )
    own = settings.model_copy(update={"home": home, "pulsar": pulsar})
    create_topics(topics, endpoint, own)
    return own


def environment(settings: Settings, **more: str) -> dict[str, str]:
    """The environment variables that give a process these settings."""
    urls = {
        "LAKEHOUSE_PULSAR__SERVICE_URL": settings.pulsar.service_url,
        "LAKEHOUSE_PULSAR__ADMIN_URL": settings.pulsar.admin_url,
    }
    in_store = {
        "LAKEHOUSE_WAREHOUSE": settings.warehouse,
        "LAKEHOUSE_S3": settings.s3.model_dump_json(exclude_none=True),
    }
    return {
        "LAKEHOUSE_HOME": str(settings.home),
        "LAKEHOUSE_PULSAR__NAMESPACE": settings.pulsar.namespace,
        "LAKEHOUSE_SPARK__CONF": json.dumps(SHORT_RUN),
        **{name: url for name, url in urls.items() if url},
        **(in_store if settings.warehouse else {}),
        **more,
    }


def read(settings: Settings, name: str) -> list[Row]:
    if not is_stored(settings, name):
        return []
    rows: list[Row] = stored_table(settings, name).to_pyarrow_table().to_pylist()
    return rows


def messages(settings: Settings) -> list[Message]:
    """All messages that landed."""
    return [message for topic in TOPICS for message in landed(topic.name, read(settings, topic.bronze_table))]


def versions(settings: Settings) -> dict[str, int]:
    return {name: table.version() for name, table in existing_tables(settings)}


def tables(settings: Settings) -> dict[str, list[Any]]:
    return {
        "users": by_version(read(settings, "silver.users")),
        "items": by_version(read(settings, "silver.items")),
        "users_history": by_version(read(settings, "silver.users_history")),
        "items_history": by_version(read(settings, "silver.items_history")),
        "gold": by_position(read(settings, "gold.enriched_orders")),
        "waiting": by_position(map(_timeless, read(settings, "quarantine.waiting_orders"))),
        "duplicates": by_position(map(_timeless, read(settings, "quarantine.duplicate_orders"))),
        "discarded": by_position(map(_timeless, read(settings, "quarantine.discarded_orders"))),
        "malformed": sorted((row["topic"], malformed_at(row)) for row in read(settings, "quarantine.malformed")),
    }


def malformed_at(row: Row) -> Position:
    position = Position(**row["position"])
    return position if row["row"] is None else RowPosition(*position, row["row"])  # type: ignore[return-value]


def expected(oracle: Oracle) -> dict[str, list[Any]]:
    return {
        "users": oracle.latest("users"),
        "items": oracle.latest("items"),
        "users_history": by_version(oracle.history("users")),
        "items_history": by_version(oracle.history("items")),
        "gold": by_position(oracle.gold),
        "waiting": by_position(oracle.waiting),
        "duplicates": by_position(oracle.duplicates),
        "discarded": by_position(oracle.discarded),
        "malformed": sorted(oracle.malformed),
    }


def land_literally(lake: Lake, messages: Sequence[Message], topics: Sequence[Topic] = TOPICS) -> None:
    """Append messages to their bronze tables, without a broker."""
    for topic in topics:
        table = bronze_table(topic)
        lake.create(table)
        if rows := [bronze_row(message) for message in messages if message.topic == topic.name]:
            names = table.schema.names
            append_values(lake.settings, table.name, [dict(zip(names, row, strict=True)) for row in rows])


def bronze_row(message: Message) -> tuple[Any, ...]:
    when = message.publish_time
    source = (message.key, message.payload, dict(message.properties), message.event_time, when, "test", 0)
    return (message.topic, *message.position, *source, when, when.date())


def _timeless(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in CLOCK}
