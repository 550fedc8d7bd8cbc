"""gold.enriched_<facts>: facts with their state."""

from expectations.suites import CHANGE_FEED, Rule, Suite, each_row, known, not_null, types, unique, up_to_date, volume
from gold.enrichment.declaration import Enrichment
from lakehouse.delta.tables import POSITION


def enriched(enrichment: Enrichment, *rules: Rule) -> Suite:
    """What holds of any enrichment, and the rules of this one; those that quarantine must have left nothing in gold.

    Keys are unique within a day, as facts are found to be duplicates for some days only.
    """
    lookups = enrichment.lookups
    return Suite(
        table=enrichment.gold_table,
        key=enrichment.keys,
        arrives=CHANGE_FEED,
        rules=(
            types(f"{enrichment.types}, position {POSITION}, {enrichment.day} DATE"),
            *not_null(*enrichment.keys, enrichment.event_time, enrichment.day, "position"),
            unique(*enrichment.keys, enrichment.day),
            *(known(f"{lookup.name}.{lookup.key}", to=f"silver.{lookup.entity}") for lookup in lookups),
            *(each_row(name, holds) for name, holds in enrichment.rules.items()),
            *rules,
            *volume(),
            up_to_date(),
        ),
    )
