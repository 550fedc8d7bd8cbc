"""Where a message is, by its id, from the tables and the checkpoints, without Spark."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import duckdb

from pulsar_lakehouse.access import ITSELF, MASK, Reader
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.inspection.row_history import Row
from pulsar_lakehouse.inspection.table_status import read_to_its_end
from pulsar_lakehouse.jobs.trace import position, told_of_missing
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.stored import dataset_of, files_within, is_stored, stored_table

FORMS = (
    r"-?\d+/(?P<ledger>\d+)/(?P<entry>\d+)/(?P<index>-?\d+)( row \d+)?",
    r"\((?P<ledger>\d+),\s*(?P<entry>\d+),\s*-?\d+,\s*(?P<index>-?\d+)\)",
    r"(?P<ledger>\d+):(?P<entry>\d+)(?::-?\d+)?(?::(?P<index>-?\d+))?",
)
"""How `lakehouse trace`, Pulsar's Python client and its Java client print the id of a message."""


@dataclass(frozen=True)
class MessageId:
    """Without its partition, as no two partitions have the same ledger."""

    ledger: int
    entry: int
    index: int
    """In its batch; 0 if it came in none."""


def message_id(text: str) -> MessageId:
    """Raises ConfigurationError for a text that is none."""
    for form in FORMS:
        if found := re.fullmatch(form, text.strip()):
            return MessageId(int(found["ledger"]), int(found["entry"]), max(0, int(found["index"] or 0)))
    raise ConfigurationError(f"{text}: must be the id of a message, such as 0/12/5/0, (12,5,0,0) or 12:5:0:0")


@dataclass(frozen=True)
class Whereabouts:
    told: str
    has_arrived: bool = False
    is_final: bool = False
    """Whether it stays there unless somebody acts."""


def layers(pipeline: Pipeline, topic: str) -> dict[str, Entity | Enrichment | None]:
    """By the layers that messages of a topic reach, in their order: what takes them there."""
    entities = {each.topic.name: each for each in pipeline.entities}
    enrichments = {each.topic.name: each for each in pipeline.enrichments}
    reached = {"bronze": None, "silver": entities.get(topic), "gold": enrichments.get(topic)}
    return {layer: declared for layer, declared in reached.items() if layer == "bronze" or declared}


def whereabouts(
    settings: Settings, topic: Topic, id: MessageId, into: Entity | Enrichment | None, reader: Reader = ITSELF
) -> Whereabouts:
    """Where a message is on its way into the table of an entity or of facts or, by default, into bronze."""
    rows = partial(_rows, settings, id=id)
    bronze = topic.bronze_table
    if into is not None:
        if isinstance(into, Enrichment) and (found := _among_facts(rows, into)):
            return found
        if malformed := [row for row in rows(MALFORMED.name, within="position.") if row["topic"] == topic.name]:
            reason = MASK if reader.hides(MALFORMED.name, "reason") else malformed[0]["reason"]
            return Whereabouts(f"in {MALFORMED.name}: {reason}", is_final=True)
    if not (landed := rows(bronze)):
        return Whereabouts("has not landed yet")
    if into is None:
        return Whereabouts(f"in {bronze}, since {landed[0]['landed_at']:%Y-%m-%d %H:%M:%S}", has_arrived=True)
    if isinstance(into, Entity) and _is_read(settings, into.table.name, topic, id):
        return Whereabouts(f"in {into.table.name}, or older than what it has of this key", has_arrived=True)
    if not topic.is_plain and isinstance(into, Enrichment) and _is_read(settings, into.gold_table, topic, id):
        return Whereabouts(f"in {bronze}: it has no rows for {into.gold_table}", is_final=True)
    return Whereabouts(f"in {bronze}, and not {'merged' if isinstance(into, Entity) else 'enriched'} yet")


def _among_facts(rows: "partial[list[Row]]", facts: Enrichment) -> Whereabouts | None:
    in_gold = rows(facts.gold_table, within="position.")
    if in_gold and not facts.topic.rows:  # a message of many rows has arrived when none of them waits
        return Whereabouts(f"in {facts.gold_table}", has_arrived=True)
    if found := rows(facts.waiting.name, within="position."):
        return Whereabouts(f"in {facts.waiting.name}: {told_of_missing(found[0])}")
    if in_gold:
        return Whereabouts(f"in {facts.gold_table}", has_arrived=True)
    if found := rows(facts.duplicates.name, within="position."):
        first = position(found[0]["duplicate_of"])
        return Whereabouts(f"in {facts.duplicates.name}: a duplicate of {first}", is_final=True)
    if found := rows(facts.discarded.name, within="position."):
        return Whereabouts(f"in {facts.discarded.name}: it waited: {found[0]['reason']}", is_final=True)
    return None


def _is_read(settings: Settings, stream: str, topic: Topic, id: MessageId) -> bool:
    """Whether the message was in bronze at the version that the stream into a table has read to its end."""
    table = topic.bronze_table
    version = read_to_its_end(settings, stream, table)
    return version >= 0 and bool(_rows(settings, table, version=version, id=id))


def _rows(settings: Settings, name: str, *, id: MessageId, within: str = "", version: int | None = None) -> list[Row]:
    """The rows of a table that are of the message; none if there is no table. `within` is a struct with its place."""
    if not is_stored(settings, name):
        return []
    table = stored_table(settings, name, version)
    place: Mapping[str, int] = {f"{within}ledger_id": id.ledger, f"{within}entry_id": id.entry}
    files = files_within(table, {column: (value, value) for column, value in place.items()})
    is_same = " AND ".join(f"{column} = {value}" for column, value in place.items())
    indexes = "-1, 0" if id.index == 0 else str(id.index)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.from_arrow(dataset_of(table, files)).filter(
            f"{is_same} AND {within}batch_index IN ({indexes})"
        )
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
