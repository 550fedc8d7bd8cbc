"""The suite of gold.enriched_<facts>: facts with their state."""

from expectations.suites import CHANGE_FEED, Rule, Suite, each_row, known, not_null, types, unique, up_to_date, volume
from gold.enrichment.declaration import Enrichment
from lakehouse.delta.tables import POSITION


def enriched(enrichment: Enrichment, *rules: Rule) -> Suite:
    """The rules of every enrichment, and `rules` of this one. No row in gold may break a rule that quarantines.

    Keys are unique within a day only, as duplicates are detected for `dedup_days`.
    """
    lookups = enrichment.lookups
    return Suite(
        table=enrichment.gold_table,
        key=enrichment.keys,
        arrives=CHANGE_FEED,
        rules=(
            types(lambda: f"{enrichment.decoding.ddl}, position {POSITION}, {enrichment.day} DATE"),
            *not_null(*dict.fromkeys((*enrichment.keys, enrichment.event_time)), enrichment.day, "position"),
            unique(*enrichment.keys, enrichment.day),
            *(
                known(
                    *(f"{each.name}.{key}" for key in each.entity.keys),
                    to=each.entity.table.name,
                    may_be_null=not each.required,
                )
                for each in lookups
            ),
            *(each_row(name, holds) for name, holds in enrichment.rules.items()),
            *rules,
            *volume(),
            up_to_date(),
        ),
    )
