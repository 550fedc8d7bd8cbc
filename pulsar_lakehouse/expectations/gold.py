"""The suite of gold.enriched_<facts>: facts with their state."""

from collections.abc import Iterator

from pulsar_lakehouse.expectations.suites import (
    CHANGE_FEED,
    Rule,
    Suite,
    checked,
    each_row,
    known,
    not_null,
    types,
    unique,
    up_to_date,
    volume,
)
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
from pulsar_lakehouse.gold.enrichment.match import Match


def enriched(enrichment: Enrichment) -> Suite:
    """The rules of every enrichment, and the checks of this one.

    Keys are unique within a day only, as duplicates are detected for `dedup_days`.
    """
    day, event_time = enrichment.day, enrichment.event_time
    return Suite(
        table=enrichment.gold_table,
        key=enrichment.keys,
        arrives=CHANGE_FEED,
        rules=(
            types(lambda: f"{enrichment.decoding.ddl}, position {enrichment.topic.position}, {day} DATE"),
            *not_null(*dict.fromkeys((*enrichment.keys, event_time)), day, "position"),
            unique(*enrichment.keys, day),
            each_row("is_of_its_day", f"{day} = to_date({event_time})"),
            *(rule for lookup in enrichment.lookups for rule in _joined(lookup, event_time)),
            *(rule for match in enrichment.matches for rule in _matched(match, event_time)),
            *checked(enrichment.checks),
            *volume(),
            up_to_date(),
        ),
    )


def _joined(lookup: Lookup, event_time: str) -> Iterator[Rule]:
    """The state is that of the fact's key or of its survivor, and it was not deleted before the fact.

    It is there, unless it need not be, or the fact names none.
    """
    name, keys = lookup.name, [f"{lookup.name}.{key}" for key in lookup.entity.keys]
    may_be_truncated = lookup.entity.topic.envelope is not None
    yield known(*keys, to=lookup.entity.table.name, may_be_null=True, may_be_truncated=may_be_truncated)
    is_own = " AND ".join(f"{key} = {path}" for key, path in zip(keys, lookup.paths, strict=True))
    if lookup.merged_into:
        is_own += f" OR {lookup.merged}[0] = {lookup.paths[0]}"
    names_none = " OR ".join(f"{path} IS NULL" for path in lookup.paths) if lookup.required else "true"
    yield each_row(f"{name}_is_its_own", f"{name} IS NULL AND ({names_none}) OR {is_own}")
    yield each_row(f"{name}_was_not_deleted_before", f"coalesce({name}.deleted_at > {event_time}, true)")


def _matched(match: Match, event_time: str) -> Iterator[Rule]:
    """Each partner has the fact's values, and a time in its interval. There is one, if the match is required.

    A table does not know the keys of partners that it has purged, unless there is a history.
    """
    name, (low, high) = match.name, (int(end.total_seconds()) for end in match.span)
    if match.each == "first" and (match.entity.keeps_history or not match.may_be_purged):
        keys = [f"{name}.{key}" for key in match.entity.keys]
        yield known(*keys, to=match.entity.table.name, may_be_null=True)
    ends = (f"timestampadd(SECOND, {end}, {event_time})" for end in (low, high))
    same = (f"each.{by} = {on}" for by, on in zip(match.columns, match.paths, strict=True))
    is_own = " AND ".join((*same, f"each.{match.time} BETWEEN {' AND '.join(ends)}"))
    partners = name if match.each == "all" else f"array({name})"
    names_none = " OR ".join(f"{path} IS NULL" for path in match.paths) if match.required else "true"
    are_own = f"forall({partners}, each -> {is_own})"
    yield each_row(f"{name}_is_its_own", f"CASE WHEN {name} IS NULL THEN {names_none} ELSE {are_own} END")
