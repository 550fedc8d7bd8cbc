"""The suites of silver.<entity>, the latest state by key, and silver.<entity>_history, one version per message."""

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.expectations.suites import (
    CHANGE_FEED,
    Rule,
    Suite,
    checked,
    each_row,
    logged,
    not_null,
    types,
    unique,
    up_to_date,
    whole,
)
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.declared import Table

SEQUENCE = ("event_time", "publish_time", "ledger_id", "entry_id", "batch_index")


def latest(entity: Entity) -> Suite:
    """The rules of every latest state, and the checks of this one."""
    rules = (
        *not_null(*entity.keys),
        unique(*entity.keys),
        *checked(entity.checks_of_rows),
        *_conserved(entity),
        up_to_date(),
    )
    return _suite(entity, entity.table, *rules)


def versions(entity: Entity) -> Suite:
    """The rules of every history: no version ends before it begins, and each key has exactly one last version.

    In an envelope, there are truncations: versions without a key, after which keys have none that is valid.
    """
    equal, of_truncation = ("<=", " OR valid_until = valid_from") if entity.topic.envelope else ("=", "")
    last = f"count_if(valid_until IS NULL) {equal} count(DISTINCT {', '.join(entity.keys)})"
    return _suite(
        entity,
        entity.history,
        *(each_row(f"{key}_is_there", f"{key} IS NOT NULL{of_truncation}") for key in entity.keys),
        unique(*entity.keys, "sequence"),
        *not_null("valid_from"),
        each_row("begins_with_its_message", "valid_from = sequence.event_time"),
        each_row("ends_after_it_begins", "valid_until IS NULL OR valid_until >= valid_from"),
        whole("each_key_has_one_last_version", last),
    )


def _suite(entity: Entity, table: Table, *rules: Rule) -> Suite:
    """The rules that both tables share, and more `rules`."""
    is_there = " AND ".join(f"sequence.{part} IS NOT NULL" for part in SEQUENCE)
    return Suite(
        table=table.name,
        key=entity.keys,
        arrives=CHANGE_FEED,
        rules=(types(table.columns), each_row("sequence_is_there", is_there), *rules),
    )


def _conserved(entity: Entity) -> tuple[Rule, ...]:
    """Each message that is not malformed is a version in the history, and the table has no more rows than that.

    While commits of bronze are still to be merged, there is nothing to compare: `up_to_date` reports those.
    """
    if not entity.keeps_history:
        return ()
    if not entity.topic.is_plain:  # `lakehouse reconcile` counts them
        return (logged("has_no_more_rows_than_versions", f"{{rows}} <= {{{entity.history.name}}}"),)
    history, malformed = f"{{{entity.history.name}}}", f"{{{MALFORMED.name}.{entity.name}}}"
    return (
        logged("nothing_is_lost", f"{{lag}} > 0 OR {{{entity.topic.bronze_table}}} = {history} + {malformed}"),
        logged("has_no_more_rows_than_versions", f"{{rows}} <= {history}"),
    )
