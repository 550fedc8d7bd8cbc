"""Join facts with state: find the row for each lookup, and what a fact waits for if there is none."""

from collections.abc import Mapping, Sequence
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.keys import key_text
from pulsar_lakehouse.gold.enrichment.declaration import MISSING, Enrichment, Lookup, keys_of
from pulsar_lakehouse.gold.enrichment.events import VALID
from pulsar_lakehouse.gold.enrichment.match import Match
from pulsar_lakehouse.gold.enrichment.matches import CURRENT, is_matched_as, needed, with_partners
from pulsar_lakehouse.gold.enrichment.survivors import merged_among, merges_of, ways_from, ways_of
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.spark.comparing import is_same
from pulsar_lakehouse.spark.frames import frame_of
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.reading import is_exact, rows_of_keys

LACKS = ("reason", "missing")
"""The columns that say what a fact lacks; NULL if it has all its state."""
UNKNOWN = "unknown"
"""Why there is no state where there is no key to look up: the fact's own column is NULL, so it names no row, or the key
is in a row that can't be used itself. The fact does not wait for this state."""


def look_up(
    facts: DataFrame, lake: Lake, enrichment: Enrichment, *, source: DataFrame, number: int, renews: bool = False
) -> DataFrame:
    """Adds the states of all lookups, the partners of all matches, and what is missing.

    `source` is the frame that the facts come from, with at least their lookup keys. It is read again, so it should be
    cached. `number` is the number of facts, or an upper bound: it decides how they are joined. With `renews`, facts in
    gold take the latest rows also where other state is looked up through them.
    """
    few = _few_keys(source, enrichment) if number <= FEW else None
    join = partial(_join, lake=lake, enrichment=enrichment, source=source, few=few)
    kept = [each for each in enrichment.lookups if each.name in enrichment.leading and not each.is_as_of]
    if not kept or CURRENT not in facts.columns:
        return join(facts)
    joined = join(facts, keeps=F.col("_is_deleted") if renews else F.lit(True))
    # A fact that leaves gold waits for the same keys as a new fact would: without those in the rows that gold has.
    leaves = F.col("missing").isNotNull() & F.col(CURRENT).isNotNull()
    return joined.where(~leaves).unionByName(join(joined.where(leaves).select(*facts.columns)))


def _join(
    facts: DataFrame,
    *,
    lake: Lake,
    enrichment: Enrichment,
    source: DataFrame,
    few: Mapping[str, pa.Table] | None,
    keeps: Column | None = None,
) -> DataFrame:
    """Joins one lookup after the other, and then the matches.

    `keeps` says which facts in gold keep a row that has keys of later lookups.

    `few` are the keys of few facts, by lookup, where they do not depend on other lookups; None for many facts.
    """
    for lookup in enrichment.lookups:
        facts = facts.transform(with_key, lookup=lookup)
        if few is not None and lookup.through:
            few = {**few, **_collected(facts, [lookup])}
        keys = None if few is None else few[lookup.name]
        facts = facts.transform(_with_found, lake, lookup, enrichment.event_time, source=source, few=keys)
        facts = facts.transform(with_unknown, lookup=lookup)
        if keeps is not None and lookup.name in enrichment.leading and not lookup.is_as_of:
            facts = facts.transform(with_kept, lookup=lookup, keeps=keeps)
    match_partners = partial(with_partners, lake=lake, event_time=enrichment.event_time, source=source)
    for match in enrichment.matches:
        facts = facts.transform(match_partners, match=match, few=few is not None)
    return facts.transform(with_missing, lookups=enrichment.lookups, matches=enrichment.matches)


def _few_keys(source: DataFrame, enrichment: Enrichment) -> dict[str, pa.Table]:
    """The keys of all lookups whose keys are columns of the facts, by the lookup's name. One job finds them all."""
    direct = [each for each in enrichment.lookups if not each.through]
    keyed = reduce(lambda rows, lookup: rows.transform(with_key, lookup=lookup), direct, source)
    return _collected(keyed, direct) if direct else {}


def _collected(keyed: DataFrame, lookups: Sequence[Lookup]) -> dict[str, pa.Table]:
    """By lookup, the keys of facts that have `_<name>_key`, in memory: columns of the entity's key, without NULL."""
    keys = keyed.select(*(F.struct(*_columns_of(each)).alias(each.name) for each in lookups)).toArrow()
    return {each.name: pa.Table.from_struct_array(keys[each.name].combine_chunks()).drop_null() for each in lookups}


def _columns_of(lookup: Lookup) -> list[Column]:
    """The columns of the entity's key, from the column that `with_key` makes."""
    key, names = F.col(f"_{lookup.name}_key"), lookup.entity.keys
    return [(key[name] if len(names) > 1 else key).alias(name) for name in names]


def _with_found(
    facts: DataFrame, lake: Lake, lookup: Lookup, event_time: str, *, source: DataFrame, few: pa.Table | None
) -> DataFrame:
    """Adds what one lookup finds. `few` are the keys of the facts, without merges, if these are few."""
    pinned, ways = lake.table(lookup.table).pin(), None
    if lookup.merged_into is not None:
        merges = merges_of(pinned, lookup=lookup)
        if few is not None and is_exact(few.schema, pinned.schema):
            ways = ways_from(merged_among(few[lookup.key], merges), merges=merges, limit=lookup.max_merges)
            survivors = ways.select(["_survivor"]).rename_columns([lookup.key])
            few = pa.concat_tables([few, survivors], promote_options="default")
        else:
            keyed = facts if lookup.through else source.transform(with_key, lookup=lookup)
            keys = keyed.select(F.col(f"_{lookup.name}_key").alias("_key"))
            ways = ways_of(keys, merges=merges, limit=lookup.max_merges)
            if few is not None and ways.num_rows:
                few = keys.union(frame_of(keys.sparkSession, ways.select(["_survivor"]))).toArrow()
                few = few.rename_columns([lookup.key]).drop_null()
    # Few facts must not cause a shuffle of a large state.
    state = pinned.rows if few is None else rows_of_keys(pinned, few)
    facts = facts.transform(with_survivor, ways=ways, lookup=lookup)
    return facts.transform(with_state, state=state, lookup=lookup, event_time=event_time)


def with_key(facts: DataFrame, *, lookup: Lookup) -> DataFrame:
    """Adds `_<name>_key`, the key that the lookup's columns have; NULL if it is not known."""
    key = lookup.key_from([F.col(path) for path in lookup.paths])
    return facts.withColumn(f"_{lookup.name}_key", F.when(_is_known(lookup), key))


def _is_known(lookup: Lookup) -> Column:
    """Whether the fact's own columns of the key have values, and the earlier lookups' rows that have others are usable.

    A NULL in such a row is another matter: that row can change, and the fact waits for it. A fact never changes.
    """
    is_named = (F.col(path).isNotNull() for path in lookup.own_paths)
    is_usable = (F.col(f"no_{name}").isNull() for name in lookup.through)
    return reduce(Column.__and__, (*is_named, *is_usable))


def with_survivor(facts: DataFrame, *, ways: pa.Table | None, lookup: Lookup) -> DataFrame:
    """Makes `_<name>_key` the key whose state the fact is joined with, and adds `<name>_merged` if keys can merge.

    `ways` are the ways from all merged keys of the facts, as `ways_from` returns them; None if keys can't merge.
    """
    if ways is None:
        return facts
    at = f"_{lookup.name}_key"
    survivors = frame_of(facts.sparkSession, ways.rename_columns(["_key", "_survivor", lookup.merged]))
    if not ways.num_rows:  # an empty join would still cost a job
        return facts.withColumn(lookup.merged, F.lit(None).cast(survivors.schema[lookup.merged].dataType))
    joined = facts.join(F.broadcast(survivors), on=F.col(at) == F.col("_key"), how="left")
    return joined.withColumn(at, F.coalesce("_survivor", at)).drop("_key", "_survivor")


def with_state(facts: DataFrame, *, state: DataFrame, lookup: Lookup, event_time: str) -> DataFrame:
    """Adds the state's row as the struct `lookup.name`, and `no_<name>`: why it can't be used, or NULL.

    The struct is NULL if the state can't be used and is not required. If the latest state was purged, the fact keeps
    the state from its row in gold, if that row used the key.
    """
    at = F.col(f"_{lookup.name}_key")
    row = F.struct(*(name for name in state.columns if name not in VALID)).alias(lookup.name)
    validity = VALID if lookup.is_as_of else ()
    is_merged = F.lit(False)
    if lookup.merged_into is not None:
        is_merged = lookup.merges_into(state.schema[lookup.key].dataType).isNotNull()
    key = lookup.key_from([F.col(name) for name in lookup.entity.keys])
    rows = state.select(key.alias("_key"), row, is_merged.alias("_is_merged"), *validity)
    matches = at == F.col("_key")
    if lookup.is_as_of:
        matches = matches & was_valid(F.col(event_time))
    joined = facts.join(rows, on=matches, how="left").drop("_key", *validity)
    if not lookup.is_as_of and CURRENT in facts.columns:
        current, is_purged = F.col(CURRENT), F.col("_is_purged")
        joined = joined.withColumn("_is_purged", F.col(lookup.name).isNull() & _was_used(at, lookup))
        joined = joined.withColumns(
            {name: F.when(is_purged, current[name]).otherwise(F.col(name)) for name in lookup.adds}
        )
    reason = _unusable(lookup, event_time)
    added = {f"no_{lookup.name}": reason}
    if not lookup.required:
        added[lookup.name] = F.when(reason.isNull(), F.col(lookup.name))
    return joined.withColumns(added).drop("_is_purged", "_is_merged")


def _unusable(lookup: Lookup, event_time: str) -> Column:
    """Why the state that was found can't be used, or NULL."""
    reason = F.when(F.col(lookup.name).isNull(), "missing").when(
        F.col(f"{lookup.name}.deleted_at") <= F.col(event_time), "deleted"
    )
    if lookup.merged_into is None:
        return reason
    too_long = f"merged through more than {lookup.max_merges} keys"
    is_circle = F.array_contains(lookup.merged, F.col(f"_{lookup.name}_key"))
    no_way = F.when(is_circle, "merged in a circle").otherwise(too_long)
    return F.when(F.col("_is_merged"), no_way).otherwise(reason)


def _was_used(key: Column, lookup: Lookup) -> Column:
    """Whether the fact's row in gold used the state of this key, or a merge of it."""
    current = F.col(CURRENT)
    is_used = _key_in(current[lookup.name], lookup) == key
    if lookup.merged_into is not None:
        is_used = is_used | F.array_contains(F.coalesce(current[lookup.merged], F.array()), key)
    return F.coalesce(is_used, F.lit(False))


def _key_in(row: Column, lookup: Lookup) -> Column:
    """The key of a row of the entity; NULL if there is no row."""
    return F.when(row.isNotNull(), lookup.key_from([row[name] for name in lookup.entity.keys]))


def with_unknown(facts: DataFrame, *, lookup: Lookup) -> DataFrame:
    """Says in `no_<name>` that the key is not known, where it is not."""
    no_state = f"no_{lookup.name}"
    return facts.withColumn(no_state, F.when(_is_known(lookup), F.col(no_state)).otherwise(UNKNOWN))


def with_kept(facts: DataFrame, *, lookup: Lookup, keeps: Column) -> DataFrame:
    """Keeps the row that a fact has in gold where `keeps` holds, if the lookup finds usable state of the same key.

    So the keys in that row stay the same, though the entity has a newer one. `keeps` can use `_is_deleted`, which says
    whether the state was deleted after the fact: a tombstone's row has no such keys.
    """
    row, in_gold = F.col(lookup.name), F.col(CURRENT)[lookup.name]
    is_same = _key_in(in_gold, lookup) == F.col(f"_{lookup.name}_key")
    is_kept = F.col(f"no_{lookup.name}").isNull() & is_same & keeps
    deleted = facts.withColumn("_is_deleted", row["deleted_at"].isNotNull())
    return deleted.withColumn(lookup.name, F.when(is_kept, in_gold).otherwise(row)).drop("_is_deleted")


def with_missing(facts: DataFrame, *, lookups: Sequence[Lookup], matches: Sequence[Match] = ()) -> DataFrame:
    """Adds `reason` and `missing`: which required states, and partners, are not there, and their keys; or NULL."""
    lacks: list[tuple[Lookup | Match, Column]] = [(each, _lack(each)) for each in lookups if each.required]
    lacks += [(each, F.col(f"no_{each.name}")) for each in matches]
    if not lacks:
        return facts.withColumns({"reason": F.lit(None).cast("string"), "missing": F.lit(None).cast(MISSING)})
    is_missing = reduce(Column.__or__, (reason.isNotNull() for _, reason in lacks))
    named = (F.concat(F.lit(f"{each.name} "), reason) for each, reason in lacks)
    known = {lookup.name: lookup for lookup in lookups}
    states = (
        F.when(reason.isNotNull(), needed(each) if isinstance(each, Match) else _needed(each, reason, known))
        for each, reason in lacks
    )
    return facts.withColumns(
        {
            "reason": F.when(is_missing, F.concat_ws(", ", *named)),
            "missing": F.when(is_missing, F.array_compact(F.array(*states)).cast(MISSING)),
        }
    )


def _lack(lookup: Lookup) -> Column:
    """Why the fact waits for the lookup's state, or NULL. It does not if there is no key to look up."""
    reason = F.col(f"no_{lookup.name}")
    return F.when(reason != UNKNOWN, reason)


def _needed(lookup: Lookup, reason: Column, known: Mapping[str, Lookup]) -> Column:
    """An element of `missing`."""
    via = [_keys(each) for each in _earlier(lookup, known)]
    return F.struct(
        F.lit(lookup.entity.name).alias("entity"),
        _text_of_key(lookup).alias("key"),
        reason.alias("reason"),
        lookup.merged_keys.alias("merged"),
        (F.concat(*via) if via else F.lit(None)).alias("via"),
    )


def _earlier(lookup: Lookup, known: Mapping[str, Lookup]) -> list[Lookup]:
    """The lookups that a lookup goes through, each after those that it goes through itself."""
    earlier: dict[str, Lookup] = {}
    for name in lookup.through:
        earlier |= {each.name: each for each in (*_earlier(known[name], known), known[name])}
    return list(earlier.values())


def _keys(lookup: Lookup) -> Column:
    return keys_of(F.lit(lookup.entity.name), lookup.merged_keys, _text_of_key(lookup))


def _text_of_key(lookup: Lookup) -> Column:
    """The text of the key that was looked up. One of several columns may have no value of the entity's types."""
    text = lookup.text_of(F.col(f"_{lookup.name}_key"))
    return F.coalesce(text, key_text([F.col(path) for path in lookup.paths])) if len(lookup.paths) > 1 else text


def was_valid(moment: Column) -> Column:
    """Whether a version, or a change, was valid at a moment. A NULL `valid_from` or `valid_until` is an open end."""
    since, until = F.col("valid_from"), F.col("valid_until")
    return (since.isNull() | (since <= moment)) & (until.isNull() | (moment < until))


def is_corrected(enrichment: Enrichment) -> Column:
    """Whether the state that a fact should have differs from its row in gold.

    For an as_of lookup, another version differs, or the same one has other values of older ones. For a latest lookup,
    only another survivor, other merged keys, or no state instead of some, differ: newer state of the same key is not a
    correction. For a match, any other partner, or another version of one, differs.
    """
    current, same = F.col(CURRENT), F.lit(True)
    for lookup in enrichment.lookups:
        if lookup.is_as_of:
            due, present = current[lookup.name], F.col(lookup.name)
            same = same & due["sequence"].eqNullSafe(present["sequence"])
            for name in lookup.entity.values if lookup.entity.is_partial else ():
                kind = lookup.entity.decoding.schema[name].dataType
                same = same & is_same(due[name], present[name], kind)
            continue
        if lookup.merged_into is not None or not lookup.required or lookup.through:
            due, present = (_key_in(row, lookup) for row in (F.col(lookup.name), current[lookup.name]))
            same = same & due.eqNullSafe(present)
        if lookup.merged_into is not None:
            same = same & current[lookup.merged].eqNullSafe(F.col(lookup.merged))
    for match in enrichment.matches:
        same = same & is_matched_as(current[match.name], F.col(match.name), match)
    return ~same
