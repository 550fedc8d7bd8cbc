"""Refresh a declared table: compute what changes of its sources touch, or all, and merge what differs.

Nothing rests on where a refresh ended the last time: it computes from the sources as they are now, so that one which
reads changes again merges nothing. `gold.refreshes` only saves reading.

Rows on which the SELECT fails stop nothing: what they would be part of is not in the table, but in
`quarantine.sql_rows`, until they are corrected.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from gold.sql.checking import checked
from gold.sql.declarations import FULL, INCREMENTAL, SQL_ROWS, SqlTable
from gold.sql.failing import each_expression_alone, is_of_data, tried
from gold.sql.statements import DIALECT, Statement, located, narrow, parse, select, touched
from lakehouse.delta.status import REFRESHES_TABLE
from lakehouse.delta.tables import (
    FEED,
    Table,
    append,
    cached,
    create_table,
    delta_table,
    is_known_empty,
    of_keys,
    pin_table,
    read_changes,
    read_table,
    read_version,
    table_exists,
    table_id,
    table_version,
    with_columns_of,
)
from lakehouse.errors import ConfigurationError, PermanentError
from lakehouse.settings import Settings

REFRESHES = Table(
    name=REFRESHES_TABLE,
    columns="""
        table STRING, kind STRING, reason STRING, inserted BIGINT, updated BIGINT, deleted BIGINT,
        table_id STRING, definition STRING, sources MAP<STRING, STRUCT<id: STRING, version: BIGINT>>,
        at TIMESTAMP, quarantined BIGINT
    """,
    properties={"delta.appendOnly": "true"},
)
"""What each refresh did, and the versions of the sources that the table has been made of since; none if that failed."""

FAILED, NOTHING_NEW = "failed", "nothing new"

Versions = Mapping[str, tuple[str, int]]
"""Of each source, what tells it from one that is made anew, and its version."""


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What a refresh did: its kind, `incremental` or `full`, why, and how many rows of the table it changed.

    A third kind, `failed`, left the table as it was. `quarantined` rows are in quarantine, `failing` are some reasons.
    """

    table: str
    kind: str
    reason: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    quarantined: int = 0
    failing: tuple[str, ...] = ()


def gold_table(table: SqlTable, columns: StructType) -> Table:
    types = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in columns)
    return Table(name=table.name, columns=types, properties={"delta.enableChangeDataFeed": "true"})


def refresh(spark: SparkSession, settings: Settings, table: SqlTable, *, full: bool = False) -> Refreshed:
    """Make the table what its SELECT says of the sources now; `full` computes all of it, whatever was declared.

    Raises ConfigurationError, with file and line, if that can't be done as it is declared, and PermanentError if the
    keys are not unique, or NULL: then the table stays as it was.
    """
    statement = parse(table)
    versions = {name: (table_id(spark, settings, name), table_version(spark, settings, name)) for name in table.sources}
    sources = {name: read_version(spark, settings, name, version) for name, (_, version) in versions.items()}
    whole = checked(spark, settings, statement, sources)
    _refuse_other_keys(spark, settings, table)
    create_table(spark, settings, gold_table(table, whole.schema))
    create_table(spark, settings, REFRESHES)
    held = read_table(spark, settings, table.name)
    last = _last_refresh(spark, settings, statement)
    why_full = "asked for" if full else _why_full(statement, last, versions)
    try:
        if why_full or last is None:
            done = Refreshed(table=table.name, kind=FULL, reason=why_full, **_merge(settings, statement, whole, held))
        else:
            done = _refresh_touched(spark, settings, statement, sources, last, versions)
    except PySparkException as error:
        if not is_of_data(error):
            raise
        done = _refresh_what_does_not_fail(spark, settings, statement, sources, error)
    if done.reason != NOTHING_NEW:
        if not done.quarantined:
            _clear_quarantine(spark, settings, table)
        _remember(spark, settings, statement, done, versions)
    return done


def _refresh_touched(
    spark: SparkSession,
    settings: Settings,
    statement: Statement,
    sources: Mapping[str, DataFrame],
    last: Row,
    versions: Versions,
) -> Refreshed:
    read = {name: last.sources[name].version for name in versions}
    changed = {
        name: _changed_rows(spark, settings, name, read[name] + 1, version)
        for name, (_, version) in versions.items()
        if version > read[name]
    }
    table = statement.table
    if not changed:
        held_back = last.quarantined or 0
        return Refreshed(table=table.name, kind=INCREMENTAL, reason=NOTHING_NEW, quarantined=held_back)
    held = read_table(spark, settings, table.name)
    with cached(touched(spark, statement, sources, changed)) as groups:
        count, sources = narrow(statement, sources, groups)
        part = select(spark, statement, sources)
        keys = groups.select(*statement.grouping)
        counts = _merge(settings, statement, of_keys(part, keys), of_keys(held, keys)) if count else {}
    return Refreshed(table=table.name, kind=INCREMENTAL, reason=f"{count:,} groups touched", **counts)


def _refresh_what_does_not_fail(
    spark: SparkSession,
    settings: Settings,
    statement: Statement,
    sources: Mapping[str, DataFrame],
    error: PySparkException,
) -> Refreshed:
    """Compute all but what `error` is about, which goes to quarantine: rows if they can be told, or else the table."""
    table = statement.table
    with each_expression_alone(spark), ExitStack() as stack:
        try:
            rows = stack.enter_context(cached(tried(spark, statement, sources)))
            failing = rows.where("reason IS NOT NULL").select("keys", "reason").distinct()
            count, *reasons = failing.agg(F.count("*"), F.min("reason"), F.max("reason")).collect()[0]
        except (PySparkException, ConfigurationError) as problem:
            if isinstance(problem, PySparkException) and not (
                is_of_data(problem) or isinstance(problem, AnalysisException)
            ):
                raise
            reason = located(statement, error)
            _quarantine(spark, settings, table, spark.createDataFrame([(None, reason)], "keys STRING, reason STRING"))
            why = "rows fail, and it can't be told which: the table stays as it was"
            return Refreshed(table=table.name, kind=FAILED, reason=why, quarantined=1, failing=(reason,))
        _quarantine(spark, settings, table, failing)
        whole = rows.where("reason IS NULL").select("row.*")
        counts = _merge(settings, statement, whole, read_table(spark, settings, table.name))
    return Refreshed(
        table=table.name,
        kind=FULL,
        reason="rows fail",
        quarantined=count,
        failing=tuple(dict.fromkeys(reasons)) if count else (),
        **counts,
    )


def _quarantine(spark: SparkSession, settings: Settings, table: SqlTable, failing: DataFrame) -> None:
    """Make `failing` all that is in quarantine of the table; what was there stays since when it was."""
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


def _clear_quarantine(spark: SparkSession, settings: Settings, table: SqlTable) -> None:
    if table_exists(spark, settings, SQL_ROWS.name) and not is_known_empty(spark, settings, SQL_ROWS.name):
        delta_table(spark, settings, SQL_ROWS.name).delete(F.col("table") == table.name)


def _refuse_other_keys(spark: SparkSession, settings: Settings, table: SqlTable) -> None:
    """Raises ConfigurationError for a key that rows of the table could not have."""
    held = read_table(spark, settings, table.name).columns if table_exists(spark, settings, table.name) else table.keys
    if missing := [key for key in table.keys if key not in held]:
        raise ConfigurationError(
            f"{table.at}:1: keys: {missing[0]} is not in {table.name}: keys have changed: declare it under another name"
        )


def _why_full(statement: Statement, last: Row | None, versions: Versions) -> str:
    """Why all has to be computed; empty if it has not."""
    if statement.table.refresh == FULL:
        return "declared"
    if last is None:
        return "the first"
    if last.quarantined and versions != {name: (held.id, held.version) for name, held in last.sources.items()}:
        return "rows are in quarantine"
    if last.definition != _definition(statement):
        return "the declaration has changed"
    for name, (id, _) in versions.items():
        if last.sources[name].id != id:
            return f"{name} was made anew"
    if datetime.now(UTC) - last.at.astimezone(UTC) > FEED:
        return f"the last was more than {FEED.days} days ago"
    return ""


def _changed_rows(spark: SparkSession, settings: Settings, name: str, first: int, last: int) -> DataFrame:
    """All that rows of a table were or came to be in these versions."""
    feed = read_changes(spark, settings, name, first, last)
    return feed.drop("_change_type", "_commit_version", "_commit_timestamp")


def _merge(settings: Settings, statement: Statement, fresh: DataFrame, held: DataFrame) -> dict[str, Any]:
    """Make the `held` rows of the table the `fresh` ones, and write only what differs; counts what did."""
    spark, table = held.sparkSession, statement.table
    changes = fresh.transform(with_columns_of, held).transform(differences, held=held, keys=table.keys)
    with cached(changes) as changes:
        counts = _count(statement, changes)
        if counts.keys() == {"inserted"}:  # an append costs a fraction of a MERGE
            append(changes.drop("_action"), settings, table.name)
        elif counts:
            (
                delta_table(spark, settings, table.name)
                .alias("held")
                .merge(changes.alias("new"), " AND ".join(f"held.`{key}` = new.`{key}`" for key in table.keys))
                .whenMatchedDelete("new._action = 'deleted'")
                .whenMatchedUpdate(set={name: f"new.`{name}`" for name in held.columns})
                .whenNotMatchedInsert(
                    "new._action = 'inserted'", values={name: f"new.`{name}`" for name in held.columns}
                )
                .execute()
            )
    return counts


def differences(fresh: DataFrame, *, held: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows that are not as they are held, with `_action`: inserted, updated or deleted; or why they can't be."""
    row = F.struct(*held.columns)
    by_key = [F.col(key).alias(f"_{key}") for key in keys]
    new = fresh.groupBy(*by_key).agg(F.first(row).alias("new"), F.count("*").alias("rows")).alias("n")
    old = held.select(*by_key, row.alias("old")).alias("o")
    same = [F.col(f"n._{key}").eqNullSafe(F.col(f"o._{key}")) for key in keys]
    has_no_key = reduce(Column.__or__, (F.col("new")[key].isNull() for key in keys))
    action = (
        F.when(F.col("new").isNull(), "deleted")
        .when(has_no_key, "NULL")
        .when(F.col("rows") > 1, "repeated")
        .when(F.col("old").isNull(), "inserted")
        .when(~F.col("new").eqNullSafe(F.col("old")), "updated")
    )
    both = new.join(old, on=same, how="full").select(action.alias("_action"), F.coalesce("new", "old").alias("row"))
    return both.where("_action IS NOT NULL").select("_action", "row.*")


def _count(statement: Statement, changes: DataFrame) -> dict[str, int]:
    """The changes by kind. Raises PermanentError if their keys are not unique, or NULL."""
    counts = {row["_action"]: int(row["count"]) for row in changes.groupBy("_action").count().collect()}
    keys = statement.table.keys
    at, names = statement.table.at, ", ".join(keys)
    if counts.get("NULL"):
        raise PermanentError(f"{at}: NULL in the keys {names}: use coalesce() in the SELECT")
    if counts.get("repeated"):
        [one] = changes.where("_action = 'repeated'").limit(1).collect()
        shown = ", ".join(f"{key} {one[key]}" for key in keys)
        raise PermanentError(f"{at}: the keys {names} are not unique: there are several rows of {shown}")
    return counts


def _last_refresh(spark: SparkSession, settings: Settings, statement: Statement) -> Row | None:
    """Of this table, not of one that was in its place."""
    done = read_table(spark, settings, REFRESHES.name).where(
        (F.col("table") == statement.table.name)
        & (F.col("table_id") == table_id(spark, settings, statement.table.name))
    )
    return next(iter(done.orderBy(F.desc("at")).limit(1).collect()), None)


def _remember(
    spark: SparkSession, settings: Settings, statement: Statement, done: Refreshed, versions: Versions
) -> None:
    row = {
        **asdict(done),
        "table_id": table_id(spark, settings, done.table),
        "definition": _definition(statement),
        "sources": {} if done.kind == FAILED else {name: Row(id=id, version=at) for name, (id, at) in versions.items()},
        "at": datetime.now(UTC),
    }
    schema = read_table(spark, settings, REFRESHES.name).schema
    append(spark.createDataFrame([row], schema), settings, REFRESHES.name)


def _definition(statement: Statement) -> str:
    """What tells a declaration from another; comments and spaces make no difference."""
    text = f"{statement.table.keys} {statement.tree.sql(DIALECT, comments=False)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
