"""The suites of quarantine.*: what is held back, and how much of it there may be."""

from collections.abc import Sequence

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.expectations.suites import Rule, Severity, Suite, each_row, logged, not_null, unique
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS


def waiting(enrichment: Enrichment, *, at_most: float) -> Suite:
    no_key = "each.key IS NULL AND each.via IS NULL"
    expired = f"waiting_since < now() - INTERVAL {enrichment.retry_days} DAYS"
    return Suite(
        table=enrichment.waiting.name,
        key=enrichment.keys,
        may_be_empty=True,
        rules=(
            *not_null(*enrichment.keys, "position", "reason", "waiting_since"),
            unique("position"),
            # Facts of an older release say it once they are tried again. A row that led to the state may have no key.
            each_row("says_for_which_keys", f"coalesce(NOT exists(missing, each -> {no_key}), true)"),
            each_row("has_not_expired", f"NOT ({expired})", Severity.WARNING),
            *_rate("waiting", "{rows}", _landed(enrichment), at_most),
        ),
    )


def duplicates(enrichment: Enrichment, *, at_most: float) -> Suite:
    return Suite(
        table=enrichment.duplicates.name,
        key=enrichment.keys,
        may_be_empty=True,
        rules=(
            *not_null(*enrichment.keys, "position"),
            unique("position"),
            each_row("repeats_another", "duplicate_of != position"),
            *_rate("duplicate", "{rows}", _landed(enrichment), at_most),
        ),
    )


def discarded(enrichment: Enrichment) -> Suite:
    return Suite(
        table=enrichment.discarded.name,
        key=enrichment.keys,
        may_be_empty=True,
        rules=(*not_null(*enrichment.keys, "position", "reason"), unique("position")),
    )


def malformed(topics: Sequence[Topic], *, at_most: float) -> Suite:
    counted = [each for each in topics if each.is_plain]  # of the others, nothing but their messages tells the number
    rates = (
        _rate(f"malformed_{each.name}", f"{{{MALFORMED.name}.{each.name}}}", f"{{{each.bronze_table}}}", at_most)
        for each in counted
    )
    place = ("position", "row") if any(each.rows for each in topics) else ("position",)
    return Suite(
        table=MALFORMED.name,
        key=("topic", "position"),
        may_be_empty=True,
        rules=(
            *not_null("topic", "position", "publish_time"),
            unique("topic", *place),
            each_row("says_why", "length(reason) > 0"),
            *(rule for rules in rates for rule in rules),
        ),
    )


def sql_rows() -> Suite:
    return Suite(
        table=SQL_ROWS.name,
        key=("table", "keys"),
        may_be_empty=True,
        rules=(
            *not_null("table", "quarantined_at"),
            each_row("says_why", "length(reason) > 0"),
            logged("sql_fails_on_none", "{rows} = 0", Severity.WARNING, shows="{rows}"),
        ),
    )


TOO_MUCH = 0.5
"""If more than this share of a topic is held back, its contract or its producer must be wrong."""


def _landed(enrichment: Enrichment) -> str:
    """The number of facts that landed, as figures of tables."""
    topic = enrichment.topic
    if topic.is_plain:
        return f"{{{topic.bronze_table}}}"
    places = (*enrichment.places, f"{MALFORMED.name}.{topic.name}")
    return f"({' + '.join(f'{{{place}}}' for place in places)})"


def _rate(what: str, count: str, landed: str, at_most: float) -> tuple[Rule, ...]:
    """Rules on the share of landed messages that is held back: over `at_most` is a warning, over half is critical."""
    shows = f"concat(round(100 * {count} / greatest({landed}, 1), 2), ' %')"
    return (
        logged(f"{what}_are_few", f"{count} <= {at_most} * {landed}", Severity.WARNING, shows=shows),
        logged(f"{what}_are_not_most", f"{count} <= {TOO_MUCH} * {landed}", shows=shows),
    )
