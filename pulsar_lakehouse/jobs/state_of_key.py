"""What is kept for one key: of an entity its state, versions and merges, and who needs it; of facts where they are."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlglot

from pulsar_lakehouse.access import ITSELF, Reader
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.trace import has_values
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.stored import columns_of, is_stored, stored_table, table_names
from pulsar_lakehouse.terminal import moment

MOST = 20
"""Facts that are listed at most."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows with a title, perhaps none."""

    title: str
    columns: list[str]
    rows: list[tuple[Any, ...]]


def state_of_key(
    settings: Settings, pipeline: Pipeline, entity: Entity, key: str, reader: Reader = ITSELF
) -> Iterator[Part]:
    """What is kept for a key, as messages write it: a JSON array if it has several columns. Does not need Spark.

    Raises LakehouseError for a lookup whose `merged_into` DuckDB can't evaluate.
    """
    tables = set(table_names(settings))
    where, values = _of_key(entity, key)
    if entity.table.name in tables:
        latest = _rows(settings, f"SELECT * FROM {entity.table.name} WHERE {where}", values, reader)
        pairs = [pair for row in latest for pair in row.items()]
        yield Part(title=f"Latest state of {entity.name} {key}", columns=["column", "value"], rows=pairs)
        for merged_into in pipeline.merges_of(entity):
            yield from _merges(settings, entity, key, merged_into)
    if entity.history.name in tables:
        versions = _rows(
            settings, f"SELECT * FROM {entity.history.name} WHERE {where} ORDER BY sequence", values, reader
        )
        columns = ["valid from", "valid until", "deleted at", "with"]
        yield Part(title="Its versions", columns=columns, rows=[_version(entity, row) for row in versions])
        if entity.topic.envelope:
            truncated = f'SELECT valid_from FROM {entity.history.name} WHERE "{entity.keys[0]}" IS NULL ORDER BY ALL'
            yield _part(settings, f"Truncations of {entity.name}, which delete all older keys", truncated, {})
    for facts in pipeline.enrichments:
        lookups = [lookup for lookup in facts.lookups if lookup.entity.name == entity.name]
        if lookups and facts.waiting.name in tables:
            yield _waiting(settings, facts, entity, key)
        joins = [join for join in facts.joins if join.entity.name == entity.name]
        if joins and facts.gold_table in tables:
            yield _joined(settings, facts, joins, key)


def state_of_facts(settings: Settings, facts: Enrichment, key: str) -> Part:
    """Where the facts with a key are: the value of the first key column, or a JSON array of several values.

    A later message with the same keys, whose day is one of the days of duplicates, is a duplicate. Does not need Spark.
    Raises ConfigurationError for what can't be a key, and LakehouseError if there is no table yet.
    """
    tables = {name: shown for name, shown in _shown(facts).items() if is_stored(settings, name)}
    if not tables:
        raise LakehouseError(f"{facts.topic.name}: there is no table of them yet: `lakehouse run` makes them")
    schema = columns_of(stored_table(settings, next(iter(tables))))
    where, values = has_values(dict(zip(facts.keys, _texts(facts, key), strict=False)), schema)
    columns = ", ".join(f'"{name}"' for name in (*facts.keys, facts.event_time))
    selects = (f"SELECT {columns}, {shown} FROM {name} WHERE {where}" for name, shown in tables.items())
    statement = f"{' UNION ALL '.join(selects)} ORDER BY ALL LIMIT {MOST}"
    return _part(settings, f"{facts.topic.name} {key}, at most {MOST}", statement, values)


def _shown(facts: Enrichment) -> dict[str, str]:
    """What is shown of facts, as SQL, by the table where they can be."""
    first, last = (f"CAST({facts.day} {sign} {facts.dedup_days} AS DATE)" for sign in "-+")
    message = "concat_ws('/', {0}.partition, {0}.ledger_id, {0}.entry_id, {0}.batch_index)"
    if facts.topic.rows:
        message = f"concat({message}, ' row ', {{0}}.row)"
    waits = "concat(reason, ', since ', strftime(waiting_since, '%Y-%m-%d %H:%M'), ', attempts: ', attempts)"
    repeats = f"concat('repeats ', {message.format('duplicate_of')})"

    def columns(place: str, more: str, *, days: str = f"concat({first}, ' to ', {last})") -> str:
        position = message.format("position")
        return f"""'{place}' AS place, {position} AS message, {more} AS more, {days} AS "days of duplicates\""""

    return {
        facts.gold_table: columns("gold", "''"),
        facts.waiting.name: columns("waiting", waits),
        facts.discarded.name: columns("discarded", waits),
        facts.duplicates.name: columns("duplicate", repeats, days="''"),
    }


def _texts(facts: Enrichment, key: str) -> list[str]:
    """The values in a key."""
    try:
        values = json.loads(key) if key.startswith("[") else [key]
    except ValueError:
        values = []
    if not 0 < len(values) <= len(facts.keys):
        names = ", ".join(facts.keys)
        raise ConfigurationError(f"{key}: a key of {facts.topic.name} is {names}: one value, or a JSON array of them")
    return [str(value) for value in values]


def _version(entity: Entity, row: dict[str, Any]) -> tuple[Any, ...]:
    values = ", ".join(f"{name} {_brief(row[name])}" for name in entity.values if row.get(name) is not None)
    return row["valid_from"], row["valid_until"], row["deleted_at"], values


def _brief(value: object) -> str:
    return moment(value) if isinstance(value, datetime) else str(value)


def _of_key(entity: Entity, key: str, within: str = "") -> tuple[str, dict[str, str]]:
    """The condition that rows are of the key, and the values of its parameters. `within` is a struct with the row."""
    values = [key] if len(entity.keys) == 1 else [str(each) for each in json.loads(key)]
    parts = {f"key{place}": value for place, value in enumerate(values)}
    same = (f'{within}"{name}"::VARCHAR = ${part}' for name, part in zip(entity.keys, parts, strict=True))
    return " AND ".join(same), parts


def _rows(settings: Settings, statement: str, values: Mapping[str, str], reader: Reader) -> list[dict[str, Any]]:
    found = query(settings, statement, values, reader=reader)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def _part(settings: Settings, title: str, statement: str, values: Mapping[str, object]) -> Part:
    found = query(settings, statement, values)
    return Part(title=title, columns=found.columns, rows=found.fetchall())


def _merges(settings: Settings, entity: Entity, key: str, merged_into: str) -> Iterator[Part]:
    [sql] = sqlglot.transpile(merged_into, read="spark", write="duckdb")
    (where, values), table, [column] = _of_key(entity, key), entity.table.name, entity.keys  # never several columns
    yield _part(settings, "Merged into", f"SELECT {sql} FROM {table} WHERE {where} AND ({sql}) IS NOT NULL", values)
    merged = f'SELECT "{column}" FROM {table} WHERE ({sql})::VARCHAR = $key0 ORDER BY 1'
    yield _part(settings, "Merged from", merged, values)


def _waiting(settings: Settings, facts: Enrichment, entity: Entity, key: str) -> Part:
    needs = "each.m.entity = $entity AND (each.m.key = $key OR list_contains(each.m.merged, $key))"
    through = "list_contains(each.m.via, {'entity': $entity, 'key': $key})"
    where = f"EXISTS (SELECT 1 FROM unnest(missing) AS each(m) WHERE ({needs}) OR {through})"
    statement = f"""
        SELECT {", ".join(facts.keys)}, reason, attempts, waiting_since FROM {facts.waiting.name} WHERE {where}
        ORDER BY waiting_since, 1 LIMIT {MOST}
    """
    title = f"{facts.topic.name} that wait for it, at most {MOST}"
    return _part(settings, title, statement, {"entity": entity.name, "key": key})


def _joined(settings: Settings, facts: Enrichment, joins: Sequence[Lookup | Match], key: str) -> Part:
    counts, time = [], facts.event_time
    for join in joins:
        is_one = isinstance(join, Lookup) or join.each == "first"
        where, values = _of_key(join.entity, key, f'"{join.name}".' if is_one else "each.m.")
        if not is_one:
            where = f'EXISTS (SELECT 1 FROM unnest("{join.name}") AS each(m) WHERE {where})'
        numbers = f"count(*) AS {facts.topic.name}, min({time}) AS first, max({time}) AS last"
        counts.append(f"SELECT '{join.name}' AS lookup, {numbers} FROM {facts.gold_table} WHERE {where}")
    return _part(settings, f"{facts.topic.name} in gold that have it", " UNION ALL ".join(counts), values)
