"""What there is and how far it has come, read from the broker, the tables' logs and the checkpoints. No Spark."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from deltalake import DeltaTable

from lakehouse.endpoint import Endpoint, call_admin
from lakehouse.query import existing_tables
from lakehouse.settings import Settings
from lakehouse.topic_admin import subscription
from lakehouse.topics import Topic


@dataclass(frozen=True, kw_only=True)
class TopicStatus:
    name: str
    messages: int
    """Acknowledged by the broker since it started, and still there or not."""
    backlog: int
    """Messages that have not landed."""


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    name: str
    rows: int
    size: int
    """Bytes of the files that make up the table."""
    changed_at: datetime
    lag: int | None
    """Commits of the tables it is made from that its stream has not read. None: it has no stream of its own."""


def topic_status(topic: Topic, endpoint: Endpoint, settings: Settings) -> TopicStatus:
    """Raises BrokerError if the topic does not exist."""
    path = f"persistent/{settings.pulsar.namespace}/{topic.name}/partitioned-stats?getPreciseBacklog=true"
    stats = call_admin("GET", path, endpoint, settings).json()
    cursor = stats["subscriptions"].get(subscription(topic), {})
    return TopicStatus(name=topic.name, messages=stats["msgInCounter"], backlog=cursor.get("msgBacklog", 0))


def table_statuses(settings: Settings) -> list[TableStatus]:
    tables = dict(existing_tables(settings))
    return [
        TableStatus(
            name=name,
            rows=table.count(),
            size=sum(table.get_add_actions(flatten=True)["size_bytes"].to_pylist()),
            changed_at=datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, UTC),
            lag=_lag(settings, name, tables),
        )
        for name, table in tables.items()
    ]


def _lag(settings: Settings, name: str, tables: dict[str, DeltaTable]) -> int | None:
    """Versions of its sources that are newer than what the table's stream has committed."""
    checkpoint = Path(settings.checkpoint_path(name))
    batches = sorted(int(path.name) for path in checkpoint.glob("commits/[0-9]*"))
    if not batches:
        return None
    read = {json.loads(line)["reservoirId"]: json.loads(line) for line in _offsets(checkpoint, batches[-1])}
    versions = {table.metadata().id: table.version() for table in tables.values()}
    return sum(_unread(offset, versions.get(table, 0)) for table, offset in read.items())


def _offsets(checkpoint: Path, batch: int) -> Sequence[str]:
    """The Delta sources' offsets in a batch: the lines after the version and the metadata, one for each source."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
    return [line for line in lines if "reservoirId" in line]


def _unread(offset: dict[str, object], version: int) -> int:
    """An offset with a negative index stands before its version, any other in it."""
    at, index = int(str(offset["reservoirVersion"])), int(str(offset["index"]))
    return max(0, version - at + (1 if index < 0 else 0))
