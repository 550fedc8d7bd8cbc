"""Refresh a declared table: recompute what changes of its sources touch, or everything, and merge what differs.

The result does not depend on where the last refresh ended. A refresh computes from the sources as they are now, so one
that reads changes again merges nothing. `gold.refreshes` only saves reading.

Rows on which the SELECT fails do not stop a refresh. The rows of the table that they would be part of are in
`quarantine.sql_rows` instead, until they are corrected. So are rows that fail a check whose mode is quarantine.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import reduce

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pulsar_lakehouse.contracts.checks import Mode, failed, of_mode, stop_if_failed
from pulsar_lakehouse.errors import ConfigurationError, PermanentError
from pulsar_lakehouse.gold.sql.checking import checked
from pulsar_lakehouse.gold.sql.declaration import SqlTable
from pulsar_lakehouse.gold.sql.failing_rows import each_expression_alone, is_of_data, tried
from pulsar_lakehouse.gold.sql.header import FULL, INCREMENTAL
from pulsar_lakehouse.gold.sql.parsing import DIALECT
from pulsar_lakehouse.gold.sql.quarantine import clear_quarantine, quarantine
from pulsar_lakehouse.gold.sql.statements import Statement, located, narrow, parse, select, touched
from pulsar_lakehouse.inspection.table_status import REFRESHES_TABLE
from pulsar_lakehouse.spark.frames import cached, of_keys, with_columns_of
from pulsar_lakehouse.spark.functions import fingerprints
from pulsar_lakehouse.tables.declared import FEED, Table, ddl_of, made_from
from pulsar_lakehouse.tables.definitions import declared_definition, keep_definition, refuse_other
from pulsar_lakehouse.tables.direct import Merge, append_values
from pulsar_lakehouse.tables.lake import Lake

REFRESHES = Table(
    name=REFRESHES_TABLE,
    columns="""
        table STRING, kind STRING, reason STRING, inserted BIGINT, updated BIGINT, deleted BIGINT,
        table_id STRING, definition STRING, sources MAP<STRING, STRUCT<id: STRING, version: BIGINT>>,
        at TIMESTAMP, quarantined BIGINT
    """,
    properties={"delta.appendOnly": "true"},
)
"""What each refresh did, and the versions of the sources that the table was made from; none for a failed refresh."""

FAILED, NOTHING_NEW = "failed", "nothing new"
OF_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
"""The columns that a change feed adds to the rows as they were before and after."""

Versions = Mapping[str, tuple[str, int]]
"""By source: the id of the table, which changes if it is recreated, and its version."""


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What a refresh did: its kind, why, and how many rows of the table it changed.

    The kind is `incremental`, `full`, or `failed`, which leaves the table as it was. `quarantined` is the number of
    rows in quarantine, and `failing` has some of their reasons.
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
    properties = {"delta.enableChangeDataFeed": "true", **made_from(parse(table).definition(columns.names))}
    return Table(name=table.name, columns=ddl_of(columns), properties=properties)


def refresh(lake: Lake, table: SqlTable, *, full: bool = False) -> Refreshed:
    """Update the table to what its SELECT returns now. `full` recomputes all of it, whatever is declared.

    Raises ConfigurationError, with file and line, if the table can't be refreshed as declared. Raises PermanentError if
    keys are NULL or not unique, or a check stops it: then the table stays as it was. So it does if it has a column that
    the SELECT does not have any more.
    """
    statement = parse(table)
    versions = {name: (lake.table(name).id, lake.table(name).version) for name in table.sources}
    sources = {name: lake.table(name).read(version) for name, (_, version) in versions.items()}
    whole = checked(lake, statement, sources)
    _refuse_other_keys(lake, table)
    made = gold_table(table, whole.schema)
    refuse_other(lake, made, ())
    lake.create(made)
    lake.create(REFRESHES)
    last = _last_refresh(lake, statement)
    why_full = "requested" if full else _why_full(statement, last, versions)
    try:
        if why_full or last is None:
            done = _write(lake, statement, whole, lake.table(table.name).read(), kind=FULL, reason=why_full)
        else:
            done = _refresh_touched(lake, statement, sources, last, versions)
    except PySparkException as error:
        if not is_of_data(error):
            raise
        untried = None if why_full or last is None else whole
        done = _refresh_what_does_not_fail(lake, statement, sources, error, untried=untried)
    if done.reason != NOTHING_NEW:
        if not done.quarantined:
            clear_quarantine(lake, F.col("table") == table.name)
        _remember(lake, statement, done, versions)
    if done.kind != FAILED:
        keep_definition(lake, table.name, declared_definition(made))
    return done


def _refresh_touched(
    lake: Lake, statement: Statement, sources: Mapping[str, DataFrame], last: Row, versions: Versions
) -> Refreshed:
    read = {name: last.sources[name].version for name in versions}
    changed = {
        name: lake.table(name).changes(read[name] + 1, version).drop(*OF_FEED)
        for name, (_, version) in versions.items()
        if version > read[name]
    }
    table = statement.table
    if not changed:
        return Refreshed(table=table.name, kind=INCREMENTAL, reason=NOTHING_NEW, quarantined=last.quarantined or 0)
    with cached(touched(lake.spark, statement, sources, changed)) as groups:
        count, sources = narrow(statement, sources, groups)
        part = select(lake.spark, statement, sources)
        keys = groups.select(*statement.grouping)
        reason = f"{count:,} groups touched"
        if not count:
            return Refreshed(table=table.name, kind=INCREMENTAL, reason=reason)
        present = of_keys(lake.table(table.name).read(), keys)
        return _write(lake, statement, of_keys(part, keys), present, kind=INCREMENTAL, reason=reason)


def _refresh_what_does_not_fail(
    lake: Lake,
    statement: Statement,
    sources: Mapping[str, DataFrame],
    error: PySparkException,
    *,
    untried: DataFrame | None,
) -> Refreshed:
    """Recompute all rows that do not fail, and quarantine the failing ones.

    If the failing rows can't be told from others, the rows may fail that the SELECT filters out, but whose keys an
    incremental refresh looks for: then all rows are `untried`. If these fail too, quarantines the whole table with
    `error`, and leaves it as it was.
    """
    table, present = statement.table, lake.table(statement.table.name).read()
    with each_expression_alone(lake.spark), ExitStack() as stack:
        try:
            rows = stack.enter_context(cached(tried(lake.spark, statement, sources)))
            rows.count()
        except (PySparkException, ConfigurationError) as problem:
            if isinstance(problem, PySparkException) and not (
                is_of_data(problem) or isinstance(problem, AnalysisException)
            ):
                raise
            if untried is not None:
                try:
                    return _write(lake, statement, untried, present, kind=FULL, reason="keys of changed rows fail")
                except PySparkException as again:
                    if not is_of_data(again):
                        raise
            reason = located(statement, error)
            quarantine(lake, table, lake.spark.createDataFrame([(None, reason)], "keys STRING, reason STRING"))
            why = "rows fail, but it can't be determined which: the table stays as it was"
            return Refreshed(table=table.name, kind=FAILED, reason=why, quarantined=1, failing=(reason,))
        failing = rows.where("reason IS NOT NULL").select("keys", "reason").distinct()
        whole = rows.where("reason IS NULL").select("row.*")
        return _write(lake, statement, whole, present, kind=FULL, reason="rows fail", failing=failing)


def _write(
    lake: Lake,
    statement: Statement,
    fresh: DataFrame,
    present: DataFrame,
    *,
    kind: str,
    reason: str,
    failing: DataFrame | None = None,
) -> Refreshed:
    """Replace the `present` rows of the table by the `fresh` ones, except those that a check quarantines.

    These go to quarantine together with `failing`, the keys and reasons of rows that have no values.
    """
    table, quarantined, reasons = statement.table, 0, list[str]()
    with ExitStack() as stack:
        if checks := of_mode(table.checks, Mode.QUARANTINE):
            given = f"`{table.keys[0]}` IS NOT NULL"
            names = F.when(F.expr(given), failed(checks, given=given))
            checked = stack.enter_context(cached(fresh.withColumn("_failed", F.coalesce(names, F.lit("")))))
            fresh, rejected = checked.where("_failed = ''").drop("_failed"), checked.where("_failed != ''")
            keys = F.to_json(F.struct(*table.keys), {"ignoreNullFields": "false"})
            why = F.concat(F.lit("fails "), "_failed").alias("reason")
            rejected = rejected.select(keys.alias("keys"), why).distinct()
            failing = rejected if failing is None else failing.union(rejected)
        if failing is not None:
            [[quarantined, *reasons]] = failing.agg(F.count("*"), F.min("reason"), F.max("reason")).collect()
            if quarantined:
                quarantine(lake, table, failing)
        counts = _merge(lake, statement, fresh, present)
    failing_for = tuple(dict.fromkeys(reasons)) if quarantined else ()
    return Refreshed(table=table.name, kind=kind, reason=reason, **counts, quarantined=quarantined, failing=failing_for)


def _refuse_other_keys(lake: Lake, table: SqlTable) -> None:
    """Raises ConfigurationError for a key that the existing table does not have as a column."""
    present = lake.table(table.name).schema.names if lake.table(table.name).exists() else table.keys
    if missing := [key for key in table.keys if key not in present]:
        raise ConfigurationError(
            f"{table.at}:1: keys: {missing[0]} is not in {table.name}: keys have changed: declare it under another name"
        )


def _why_full(statement: Statement, last: Row | None, versions: Versions) -> str:
    """Why a full refresh is needed; empty if an incremental one is enough."""
    if statement.table.refresh == FULL:
        return "declared"
    if last is None:
        return "first refresh"
    if last.quarantined and versions != {name: (read.id, read.version) for name, read in last.sources.items()}:
        return "rows are in quarantine"
    if last.definition != _definition(statement):
        return "the declaration has changed"
    for name, (id, _) in versions.items():
        if last.sources[name].id != id:
            return f"{name} was recreated"
    if datetime.now(UTC) - last.at.astimezone(UTC) > FEED:
        return f"the last refresh was more than {FEED.days} days ago"
    return ""


def _merge(lake: Lake, statement: Statement, fresh: DataFrame, present: DataFrame) -> Counter[str]:
    """Replace the `present` rows of the table by the `fresh` ones. Writes only what differs, and returns its counts."""
    table = statement.table
    changes = fresh.transform(with_columns_of, present).transform(differences, present=present, keys=table.keys)
    with cached(changes) as changes:
        counts = _count(statement, changes)
        written = changes.where("_action IN ('inserted', 'updated')")
        stop_if_failed(written, table.checks, table=table.name, keys=table.keys)
        target = lake.writing(counts.total(), changes).table(table.name)
        if counts.keys() == {"inserted"}:  # an append is far cheaper than a MERGE
            target.append(changes.drop("_action"))
        elif counts:
            values = {name: f"new.`{name}`" for name in present.columns}
            delete, insert_if = (f"new._action = '{action}'" for action in ("deleted", "inserted"))
            how = Merge(on=table.keys, delete=delete, update=values, insert=values, insert_if=insert_if)
            target.merge(changes, how)
    return counts


def differences(fresh: DataFrame, *, present: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows that differ from the present ones, with `_action`: inserted, updated or deleted.

    A row that can't be written has another `_action`: NULL for NULL keys, and repeated for keys that are not unique.
    """
    row = F.struct(*present.columns)
    by_key = [F.col(key).alias(f"_{key}") for key in keys]
    new = fresh.groupBy(*by_key).agg(F.first(row).alias("new"), F.count("*").alias("rows")).alias("n")
    old = present.select(*by_key, row.alias("old")).alias("o")
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


def _count(statement: Statement, changes: DataFrame) -> Counter[str]:
    """The number of changes by `_action`. Raises PermanentError if keys are NULL or not unique."""
    counts = Counter({row["_action"]: int(row["count"]) for row in changes.groupBy("_action").count().collect()})
    keys = statement.table.keys
    at, names = statement.table.at, ", ".join(keys)
    if counts.get("NULL"):
        raise PermanentError(f"{at}: NULL in the keys {names}: use coalesce() in the SELECT")
    if counts.get("repeated"):
        [one] = changes.where("_action = 'repeated'").limit(1).collect()
        shown = ", ".join(f"{key} {one[key]}" for key in keys)
        raise PermanentError(f"{at}: the keys {names} are not unique: several rows have {shown}")
    return counts


def _last_refresh(lake: Lake, statement: Statement) -> Row | None:
    """The last refresh of this table. Ignores a dropped table of this name."""
    table = lake.table(statement.table.name)
    is_of_table = (F.col("table") == table.name) & (F.col("table_id") == table.id)
    done = lake.table(REFRESHES.name).read().where(is_of_table)
    return next(iter(done.orderBy(F.desc("at")).limit(1).collect()), None)


def is_redefined(lake: Lake, table: SqlTable) -> bool:
    """Whether the existing table was made by another SELECT, or with other keys."""
    statement = parse(table)
    last = _last_refresh(lake, statement) if lake.table(REFRESHES.name).exists() else None
    return last is not None and last.definition != _definition(statement)


def _remember(lake: Lake, statement: Statement, done: Refreshed, versions: Versions) -> None:
    read = {} if done.kind == FAILED else versions
    of_table = {"table_id": lake.table(done.table).id, "definition": _definition(statement)}
    sources = [(name, {"id": id, "version": at}) for name, (id, at) in read.items()]
    row = {**asdict(done), **of_table, "sources": sources, "at": datetime.now(UTC)}
    append_values(lake.settings, REFRESHES.name, [row])


def _definition(statement: Statement) -> str:
    """A hash of what decides on the rows: keys, SQL with the values of parameters, and checks that quarantine.

    Comments and spaces do not change it.
    """
    text = f"{statement.table.keys} {statement.tree.sql(DIALECT, comments=False)}"
    if checks := of_mode(statement.table.checks, Mode.QUARANTINE):
        text += str(checks)
    if functions := fingerprints([text, *(check.sql for check in checks.values())]):
        text += str(functions)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
