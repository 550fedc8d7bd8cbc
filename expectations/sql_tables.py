"""Gold tables that a SQL file declares."""

from expectations.suites import CHANGE_FEED, Suite, not_null, unique, volume
from gold.sql.declarations import SqlTable


def declared(table: SqlTable) -> Suite:
    """A refresh stops before it would leave a key twice or NULL, so this finds what others have done to the table."""
    return Suite(
        table=table.name,
        key=table.keys,
        arrives=CHANGE_FEED,
        may_be_empty=True,
        rules=(*not_null(*table.keys), unique(*table.keys), *volume()),
    )
