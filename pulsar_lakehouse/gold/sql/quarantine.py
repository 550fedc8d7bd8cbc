"""Write the rows that are missing from declared tables, because the SELECT fails on them or they fail a check."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.delta.tables import create_table, delta_table, is_known_empty, pin_table, table_exists
from pulsar_lakehouse.gold.sql.declaration import SQL_ROWS, SqlTable
from pulsar_lakehouse.settings import Settings


def quarantine(spark: SparkSession, settings: Settings, table: SqlTable, failing: DataFrame) -> None:
    """Replace the table's quarantined rows by `failing`. Rows that were there already keep their `quarantined_at`."""
    create_table(spark, settings, SQL_ROWS)
    held = pin_table(spark, settings, SQL_ROWS.name).where(F.col("table") == table.name)
    same = [failing[name].eqNullSafe(held[name]) for name in ("keys", "reason")]
    (
        failing.join(held, on=same, how="left")
        .select(
            F.lit(table.name).alias("table"),
            failing["keys"],
            failing["reason"],
            F.coalesce(held["quarantined_at"], F.current_timestamp()).alias("quarantined_at"),
        )
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", f"`table` = '{table.name}'")
        .save(settings.table_path(SQL_ROWS.name))
    )


def clear_undeclared(spark: SparkSession, settings: Settings, declared: Iterable[str]) -> None:
    """Remove the quarantined rows of tables that are no longer declared."""
    clear_quarantine(spark, settings, ~F.col("table").isin(*declared))


def clear_quarantine(spark: SparkSession, settings: Settings, which: Column) -> None:
    if table_exists(spark, settings, SQL_ROWS.name) and not is_known_empty(spark, settings, SQL_ROWS.name):
        delta_table(spark, settings, SQL_ROWS.name).delete(which)
