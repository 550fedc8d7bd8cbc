"""What facts ask services: the keys that they wait for, or lack in gold, and that have no answer in bronze.

Bronze says it, and not silver: an answer that landed and is not merged yet must not be asked for again. Does not need
Spark.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from pulsar_lakehouse.bronze.source_rows import identifier, key_sql
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.services import Service
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.stored import columns_of, is_stored, stored_table

NONSENSE = timedelta(days=1)
"""How long after an answer that is malformed the service is asked again."""


def unanswered(settings: Settings, pipeline: Pipeline, entity: Entity, *, again: bool = False) -> list[str]:
    """The keys, as text, for which the entity's service is to be asked.

    They have no answer, or one that is older than `cache_days`, or a malformed one that is a day old or, with `again`,
    of any age. Facts that have waited for longer than `retry_days` ask with `again` alone, as no answer moves them.
    """
    asked = _asked(settings, pipeline, entity, again=again)
    if not asked or not is_stored(settings, entity.topic.bronze_table):
        return asked
    now, service = datetime.now(UTC), _service_of(entity)
    values = {
        "asked": asked,
        "name": entity.name,
        "expired": now - timedelta(service.cache_days) if service.cache_days else None,
        "nonsense": now - (timedelta() if again else NONSENSE),
    }
    malformed = "SELECT 0 AS ledger_id, 0 AS entry_id WHERE false AND $name = ''"
    if is_stored(settings, MALFORMED.name):
        malformed = f"SELECT position.ledger_id, position.entry_id FROM {MALFORMED.name} WHERE topic = $name"
    return _column(
        settings,
        f"""
        WITH asked AS (SELECT unnest($asked::VARCHAR[]) AS key),
        answered AS (
            SELECT key, max(event_time) AS said_at,
                max(ledger_id) AS ledger_id, arg_max(entry_id, ledger_id) AS entry_id
            FROM {entity.topic.bronze_table} SEMI JOIN asked USING (key) GROUP BY key
        ),
        malformed AS ({malformed})
        SELECT key FROM asked LEFT JOIN answered USING (key) LEFT JOIN malformed USING (ledger_id, entry_id)
        WHERE said_at IS NULL OR said_at <= $expired::TIMESTAMPTZ
            OR (malformed.ledger_id IS NOT NULL AND said_at <= $nonsense)
        """,
        values,
    )


def question(settings: Settings, pipeline: Pipeline, entity: Entity) -> str | None:
    """Why the entity's service is to be asked; None if it is not, or if it has just failed for the same keys."""
    from pulsar_lakehouse.bronze.services import is_left_alone  # takes 0.1 s

    keys = unanswered(settings, pipeline, entity)
    if not keys or is_left_alone(settings, _service_of(entity), keys):
        return None
    return f"{entity.name}: {len(keys):,} {'keys have' if len(keys) > 1 else 'key has'} no answer"


def facts_that_ask(pipeline: Pipeline, entity: Entity) -> list[Enrichment]:
    """The facts that look up the entity."""
    return [facts for facts in pipeline.enrichments if _lookups(facts, entity)]


def _asked(settings: Settings, pipeline: Pipeline, entity: Entity, *, again: bool) -> list[str]:
    """The keys that facts lack, whether they have an answer or not."""
    parts, values = list[str](), dict[str, object]()
    for place, facts in enumerate(facts_that_ask(pipeline, entity)):
        if is_stored(settings, facts.waiting.name):
            values |= {"name": entity.name, f"retried{place}": datetime.now(UTC) - timedelta(facts.retry_days)}
            in_time = f"{again} OR waiting_since > $retried{place}"
            waiting = f"(SELECT unnest(missing) AS state FROM {facts.waiting.name} WHERE {in_time})"
            parts.append(f"SELECT state.key AS key FROM {waiting} WHERE state.entity = $name")
        if optional := _optional(settings, facts, entity):
            values[f"since{place}"] = (datetime.now(UTC) - timedelta(facts.correction_days)).date()
            parts += [_lacking(facts, lookup, f"$since{place}") for lookup in optional]
    if not parts:
        return []
    return _column(settings, f"SELECT DISTINCT key FROM ({' UNION ALL '.join(parts)}) WHERE key IS NOT NULL", values)


def _lookups(facts: Enrichment, entity: Entity) -> list[Lookup]:
    return [lookup for lookup in facts.lookups if lookup.entity.name == entity.name]


def _optional(settings: Settings, facts: Enrichment, entity: Entity) -> list[Lookup]:
    """The lookups of the entity that are not required, of which gold has the columns already."""
    found = [each for each in _lookups(facts, entity) if not each.required]
    if not found or not is_stored(settings, facts.gold_table):
        return []
    gold = columns_of(stored_table(settings, facts.gold_table))
    return [each for each in found if all(_has(gold, path) for path in (each.name, *each.paths))]


def _has(columns: pa.Schema, path: str) -> bool:
    name, _, field = path.partition(".")
    return name in columns.names and (not field or columns.field(name).type.get_field_index(field) >= 0)


def _lacking(facts: Enrichment, lookup: Lookup, since: str) -> str:
    """SQL for the keys of facts in gold without the state of a lookup that is not required, from a day on."""
    fields = _service_of(lookup.entity).arguments
    paths = [".".join(map(identifier, path.split("."))) for path in lookup.paths]
    named = ", ".join(f"{path} AS {identifier(name)}" for path, name in zip(paths, fields.names, strict=True))
    lacks = " AND ".join((f"{identifier(lookup.name)} IS NULL", *(f"{path} IS NOT NULL" for path in paths)))
    rows = f"SELECT {named} FROM {facts.gold_table} WHERE {lacks} AND {identifier(facts.day)} >= {since}"
    return f"SELECT {key_sql([*fields], of_texts=False)} AS key FROM ({rows})"


def _service_of(entity: Entity) -> Service:
    assert isinstance(entity.source, Service)
    return entity.source


def _column(settings: Settings, sql: str, values: Mapping[str, object]) -> list[str]:
    return [key for (key,) in query(settings, sql, values).fetchall()]
