"""Facts whose time to find a partner has passed: nothing comes that says so, so each round looks for them.

A request in `quarantine.actions` makes the passing of time an event, which the enrichment stream reads like others.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from pulsar_lakehouse.gold.enrichment import matches
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, Enrichment
from pulsar_lakehouse.gold.enrichment.events import EXPIRE
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.direct import append_values
from pulsar_lakehouse.tables.stored import is_stored

BY = "the end of an interval"
"""Who asks."""


def overdue(settings: Settings, enrichments: Iterable[Enrichment]) -> Iterator[str]:
    """The topics whose waiting facts include such whose interval is over."""
    for facts in enrichments:
        if facts.matches and is_stored(settings, facts.waiting.name) and _has_overdue(settings, facts):
            yield facts.topic.name


def expire(settings: Settings, facts: Enrichment) -> None:
    """Ask the enrichment to decide about facts whose interval is over, if there are such."""
    for topic in overdue(settings, [facts]):
        asked = {"action": EXPIRE, "topic": topic, "requested_at": datetime.now(UTC), "requested_by": BY}
        append_values(settings, ACTIONS.name, [asked])


def _has_overdue(settings: Settings, facts: Enrichment) -> bool:
    values, conditions = dict[str, object](reason=matches.MISSING), []
    for place, match in enumerate(facts.matches):
        values |= {f"over{place}": matches.now() - match.wait, f"match{place}": match.awaited}
        waits = f"SELECT 1 FROM unnest(missing) AS each(m) WHERE m.entity = $match{place} AND m.reason = $reason"
        conditions.append(f'"{facts.event_time}" < $over{place} AND EXISTS ({waits})')
    rows = f"SELECT 1 FROM {facts.waiting.name} WHERE {' OR '.join(conditions)} LIMIT 1"
    return bool(query(settings, rows, values).fetchall())
