"""What is held back in quarantine, and what people ask to be done with it; without Spark."""

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from pulsar_lakehouse.access import Reader
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.trace import PLACE
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_arrow
from pulsar_lakehouse.tables.stored import columns_of, is_stored, stored_table

MOST = 20
"""Reasons of malformed messages that are told for a topic. Further ones are counted together."""


@dataclass(frozen=True)
class Chosen:
    """The waiting facts that match all filters: SQL conditions, and the values of their parameters."""

    enrichment: Enrichment
    where: str
    state: str
    """Which of the missing states match."""
    values: dict[str, str | float]


def choose(
    settings: Settings, facts: str = "", *, reason: str = "", entity: str = "", key: str = "", days: float = 0
) -> Chosen:
    """The facts of a topic, which can be left out if it is the only one, that have waited for more than `days`.

    Raises ConfigurationError if there is no such topic.
    """
    given = {"reason": reason, "entity": entity, "key": key}
    values: dict[str, str | float] = {name: value for name, value in given.items() if value}
    state = " AND ".join(f"_state.{name} = ${name}" for name in values) or "true"
    where = [f"EXISTS (SELECT 1 FROM unnest(missing) AS each(_state) WHERE {state})"] if values else ["true"]
    if days:
        where.append("waiting_since < now() - to_seconds($days * 86400)")
        values["days"] = days
    return Chosen(pipeline_of(settings).facts_named(facts), " AND ".join(where), state, values)


def waiting_by_state(settings: Settings, chosen: Chosen) -> duckdb.DuckDBPyRelation:
    """How many facts lack each state, since when, and an example."""
    expired = f"waiting_since < now() - INTERVAL {chosen.enrichment.retry_days} DAY"
    keys = ", ".join(f'"{key}"' for key in chosen.enrichment.keys)
    fact = f"concat_ws(' ', {keys})"  # as `lakehouse trace` takes it
    statement = f"""
        SELECT _state.reason, _state.entity, count(*) AS messages, min_by({fact}, waiting_since) AS oldest,
               count(DISTINCT _state.key) AS keys, min_by(_state.key, waiting_since) AS such_as,
               max(attempts) AS tried, min(waiting_since) AS since,
               count(*) FILTER (WHERE {expired}) AS expired
        FROM (SELECT *, unnest(missing) AS _state FROM {chosen.enrichment.waiting.name} WHERE {chosen.where})
        WHERE {chosen.state} GROUP BY ALL ORDER BY messages DESC, 1, 2
    """
    return query(settings, statement, chosen.values)


def malformed_by_reason(settings: Settings, reader: Reader) -> duckdb.DuckDBPyRelation | None:
    """How many messages of each topic break the contract, by reason. None without a table.

    The rarest reasons of a topic are one, as each message can have a reason of its own.
    """
    statement = f"""
        WITH reasons AS (
            SELECT topic, reason, count(*) AS messages, min(quarantined_at) AS since, max(quarantined_at) AS until
            FROM {MALFORMED.name} GROUP BY topic, reason
        ), placed AS (
            SELECT *, row_number() OVER (PARTITION BY topic ORDER BY messages DESC, reason) AS place FROM reasons
        )
        SELECT topic, any_value(if(place > {MOST}, 'other reasons', reason)) AS reason,
               sum(messages)::BIGINT AS messages, min(since) AS since, max(until) AS until
        FROM placed GROUP BY topic, least(place, {MOST + 1}) ORDER BY topic, min(place)
    """
    return query(settings, statement, reader=reader) if is_stored(settings, MALFORMED.name) else None


def left_out_by_reason(settings: Settings, reader: Reader) -> duckdb.DuckDBPyRelation | None:
    """How many rows each SQL table leaves out, and why, with an example. None without a table."""
    statement = f"""
        SELECT "table", reason, count(*) AS rows, min(keys) AS example, min(quarantined_at) AS since
        FROM {SQL_ROWS.name} GROUP BY ALL ORDER BY 1, 3 DESC
    """
    return query(settings, statement, reader=reader) if is_stored(settings, SQL_ROWS.name) else None


def actions_of(settings: Settings, action: str, chosen: Chosen, *, who: str, note: str) -> pa.Table:
    """The rows of `quarantine.actions` that ask for an action on each chosen fact.

    Raises LakehouseError if no fact has ever been enriched.
    """
    waiting = chosen.enrichment.waiting.name
    if not is_stored(settings, waiting):
        raise LakehouseError(f"{waiting} is not there yet: run `lakehouse enrich` first")
    parts = ", ".join(f"{part} := position.{part}" for part in ("partition", *PLACE))
    has_rows = chosen.enrichment.topic.rows
    message, row = (f"struct_pack({parts})", "position.row") if has_rows else ("position", "NULL::INTEGER")
    rows = f"""
        SELECT $action AS action, $topic AS topic, {message} AS position, now() AS requested_at,
               $who AS requested_by, nullif($note, '') AS note, {row} AS row
        FROM {waiting} WHERE {chosen.where}
    """
    told = {"action": action, "topic": chosen.enrichment.topic.name, "who": who, "note": note}
    return query(settings, rows, {**chosen.values, **told}).to_arrow_table()


def ask(settings: Settings, actions: pa.Table) -> None:
    """Record the actions, which the enrichment stream reads."""
    if len(actions):
        columns = columns_of(stored_table(settings, ACTIONS.name)).names  # of an earlier release, without the last
        append_arrow(settings, ACTIONS.name, actions.select(columns))
