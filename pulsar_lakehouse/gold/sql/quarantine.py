"""Write the rows that are missing from declared tables, because the SELECT fails on them or they fail a check."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS, SqlTable
from pulsar_lakehouse.tables.lake import Lake


def quarantine(lake: Lake, table: SqlTable, failing: DataFrame) -> None:
    """Replace the table's quarantined rows by `failing`. Rows that were there already keep their `quarantined_at`."""
    lake.create(SQL_ROWS)
    known = lake.table(SQL_ROWS.name).pin().rows.where(F.col("table") == table.name)
    same = [failing[name].eqNullSafe(known[name]) for name in ("keys", "reason")]
    since = F.coalesce(known["quarantined_at"], F.current_timestamp()).alias("quarantined_at")
    (
        failing.join(known, on=same, how="left")
        .select(F.lit(table.name).alias("table"), failing["keys"], failing["reason"], since)
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"`table` = '{table.name}'")
        .save(lake.settings.table_path(SQL_ROWS.name))
    )


def clear_undeclared(lake: Lake, declared: Iterable[str]) -> None:
    """Remove the quarantined rows of tables that are no longer declared."""
    clear_quarantine(lake, ~F.col("table").isin(*declared))


def clear_quarantine(lake: Lake, which: Column) -> None:
    if lake.table(SQL_ROWS.name).exists() and not lake.table(SQL_ROWS.name).is_known_empty:
        lake.table(SQL_ROWS.name).delta.delete(which)
