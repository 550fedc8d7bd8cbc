"""Gold tables that a SQL file declares."""

from expectations.suites import CHANGE_FEED, Suite, not_null, unique, volume
from gold.declarations import SqlTable


def declared(table: SqlTable) -> Suite:
    """What a refresh has left. It stops before it leaves a key twice or NULL, so this finds what others have done."""
    return Suite(
        table=table.name,
        key=table.keys,
        arrives=CHANGE_FEED,
        may_be_empty=True,
        rules=(*not_null(*table.keys), unique(*table.keys), *volume()),
    )
