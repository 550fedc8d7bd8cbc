"""The suite of a gold table that is declared in SQL."""

from pulsar_lakehouse.expectations.suites import CHANGE_FEED, Suite, checked, not_null, unique, volume
from pulsar_lakehouse.gold.sql.declaration import SqlTable


def declared(table: SqlTable) -> Suite:
    """The rules of every such table, and the checks of this one.

    A refresh never leaves a duplicate or NULL key, so these rules find what others have done to the table.
    """
    return Suite(
        table=table.name,
        key=table.keys,
        arrives=CHANGE_FEED,
        may_be_empty=True,
        rules=(*not_null(*table.keys), unique(*table.keys), *checked(table.checks), *volume()),
    )
