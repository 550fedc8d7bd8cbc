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
from pulsar_lakehouse.tables.declared import POSITION


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
            types(lambda: f"{enrichment.decoding.ddl}, position {POSITION}, {day} DATE"),
            *not_null(*dict.fromkeys((*enrichment.keys, event_time)), day, "position"),
            unique(*enrichment.keys, day),
            each_row("is_of_its_day", f"{day} = to_date({event_time})"),
            *(rule for lookup in enrichment.lookups for rule in _joined(lookup, event_time)),
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
