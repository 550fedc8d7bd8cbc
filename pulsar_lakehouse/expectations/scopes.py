"""Which rows of a table are validated, and where they are read.

Few rows are found by Arrow, and held in memory: to plan their scan takes Spark longer than all rules on them.
"""

from contextlib import suppress
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from pulsar_lakehouse.expectations.results import Validated
from pulsar_lakehouse.expectations.suites import CHANGE_FEED, Kind, Rule, Suite
from pulsar_lakehouse.limits import VALIDATED_ROWS
from pulsar_lakehouse.spark.frames import frame_of, of_keys
from pulsar_lakehouse.tables.lake import Lake, LakeTable, Pinned
from pulsar_lakehouse.tables.reading import LeftToSparkError, find_after, find_all_if_small, find_changed, find_rows

WHOLE, NEW, NOTHING = "whole", "new", "nothing new"

WHOLE_AFTER = timedelta(days=1)
"""How long only new rows are validated, until the whole table is validated again."""


def scope_of(suite: Suite, lake: Lake, last: Validated | None, version: int, *, now: datetime) -> str:
    if last is None or last.whole_at is None or last.whole_at < now - WHOLE_AFTER or last.version > version:
        return WHOLE
    if last.version == version:
        return NOTHING
    if suite.arrives == CHANGE_FEED and not lake.table(suite.table).has_changes_since(last.version):
        return WHOLE
    return NEW if suite.arrives else WHOLE


def rows_of(suite: Suite, since: Validated | None, *, quick: Lake, lake: Lake) -> DataFrame:
    """The rows that came `since` the last validation, or all, as they are now.

    There is a column for each reference, named like its rule: TRUE if the value is known. If the rows are few, they are
    in memory, and in the session of the lake `quick`.
    """
    references = [rule for rule in suite.rules if rule.kind is Kind.REFERENCE]
    pinned = quick.table(suite.table).pin()
    with suppress(LeftToSparkError):
        found = _found(pinned, suite, since)
        if found.num_rows > VALIDATED_ROWS:
            raise LeftToSparkError("the rows are many")
        for rule in references:
            found = found.append_column(rule.name, _are_known(found, rule, quick))
        schema = StructType([*pinned.schema, *(StructField(rule.name, BooleanType()) for rule in references)])
        return frame_of(quick.spark, found, schema)
    rows = _read(lake.table(suite.table).pin(), suite, since)
    for rule in references:
        rows = _with_known(rows, rule, lake)
    return rows


def _found(pinned: Pinned, suite: Suite, since: Validated | None) -> pa.Table:
    if since is None:
        return find_all_if_small(pinned)
    if suite.arrives == CHANGE_FEED:
        return find_changed(pinned, suite.key, since=since.version)
    return find_after(pinned, str(suite.arrives), since.at)


def _read(pinned: Pinned, suite: Suite, since: Validated | None) -> DataFrame:
    if since is None:
        return pinned.rows
    if suite.arrives != CHANGE_FEED:
        return pinned.rows.where(F.col(str(suite.arrives)) > F.lit(since.at))
    changes = pinned.table.changes(since.version + 1, pinned.version)
    # The rows of changed keys as they are now: a change may be outdated by another, or repeat an older key.
    return of_keys(pinned.rows, changes.where("_change_type IN ('insert', 'update_postimage')").select(*suite.key))


def _are_known(rows: pa.Table, rule: Rule, lake: Lake) -> pa.ChunkedArray:
    """TRUE for each value of a reference that is known, else NULL, as a left join has it."""
    columns, names = _columns_and_keys(rule)
    values = pa.table([_values(rows, column) for column in columns], names=names)
    to, last_only = _referred(rule, lake)
    found = find_rows(to.pin(), values.drop_null(), columns=[*names, "valid_until"] if last_only else names)
    known = found.filter(pc.is_null(found["valid_until"])) if last_only else found
    if len(names) == 1:
        are_known = pc.is_in(values[names[0]], known[names[0]].combine_chunks().drop_null())
    else:
        held, wanted = (list(zip(*(each[name].to_pylist() for name in names), strict=True)) for each in (known, values))
        are_known = pa.array(map(set(held).__contains__, wanted), pa.bool_())
    return pc.if_else(are_known, True, None)


def _values(rows: pa.Table, path: str) -> pa.ChunkedArray:
    name, *fields = path.split(".")
    return pc.struct_field(rows[name], fields) if fields else rows[name]


def _with_known(rows: DataFrame, rule: Rule, lake: Lake) -> DataFrame:
    columns, names = _columns_and_keys(rule)
    to, last_only = _referred(rule, lake)
    known = (to.read().where("valid_until IS NULL") if last_only else to.read()).dropDuplicates(names)
    keys = {f"_key{place}": column for place, column in enumerate(columns)}
    of_row = (F.col(name).alias(key) for key, name in zip(keys, names, strict=True))
    same = [F.col(column) == F.col(key) for key, column in keys.items()]
    return rows.join(known.select(*of_row, F.lit(True).alias(rule.name)), on=same, how="left").drop(*keys)


def _columns_and_keys(rule: Rule) -> tuple[list[str], list[str]]:
    """The columns of a reference, which can be in structs, and those of the same names in the table that it is to."""
    columns = rule.holds.split(", ")
    return columns, [column.rpartition(".")[2] for column in columns]


def _referred(rule: Rule, lake: Lake) -> tuple[LakeTable, bool]:
    """The table that has all keys, and whether only its last versions count: a history forgets none."""
    history = lake.table(f"{rule.to}_history")
    return (history, not rule.may_be_truncated) if history.exists() else (lake.table(rule.to), False)
