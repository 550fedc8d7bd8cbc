"""Judge facts: which of them repeat others, which state each is joined with, and for what it has to wait."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from gold.enrichment import Enrichment, Lookup
from gold.survivors import read_merges, survivors_of
from lakehouse.declared_sql import naming, try_eval
from lakehouse.decoding import decode
from lakehouse.settings import Settings
from lakehouse.tables import pin_table

VALID = ("valid_from", "valid_until")
MISSING = ("reason", "missing_entity", "missing_key", "missing_merged")


def decode_facts(messages: DataFrame, *, enrichment: Enrichment) -> DataFrame:
    """Messages as facts with `message`, `reason` and `day`; a tombstone is rejected, facts are not deleted.

    So is what fails a rule of the enrichment: its reason names all of those.
    """
    reject = F.when(F.col("message.is_tombstone"), "tombstone: a fact can't be deleted")
    for column in (*enrichment.keys, enrichment.occurred_at):  # without these, a fact can't be told from others
        reject = reject.when(F.col(column).isNull(), f"{column} is NULL")
    if enrichment.rules:
        failed = failed_rules(enrichment.rules)
        reject = reject.when(failed != "", F.concat(F.lit("fails "), failed))
    rules = {f"{enrichment.topic.name}: rule {name}: {sql}": F.expr(sql) for name, sql in enrichment.rules.items()}
    with naming(messages.sparkSession.createDataFrame([], enrichment.types), rules):
        decoded = messages.transform(decode, decoding=enrichment.decoding, reject=reject)
    return decoded.withColumn(enrichment.day, F.to_date(enrichment.occurred_at))


def failed_rules(rules: Mapping[str, str]) -> Column:
    """The names of the rules that are not TRUE of a row, as a list in a text; an empty one if all are.

    One that ends in an error is not TRUE. To be used within a branch, as `try_eval`.
    """
    is_true = {name: F.coalesce(try_eval(F.expr(sql)), F.lit(False)) for name, sql in rules.items()}
    return F.concat_ws(", ", *(F.when(~holds, name) for name, holds in is_true.items()))


def facts_of(batch: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The facts of a batch that keep their contract."""
    valid = F.col("message").isNotNull() & F.col("reason").isNull()
    return batch.where(valid).select(*enrichment.columns, enrichment.day, "message.position", "message.publish_time")


def find_repeats(facts: DataFrame, *, held: DataFrame, keys: Sequence[str], day: str, horizon: int) -> DataFrame:
    """The facts that are not the first of their keys, with `duplicate_of`: the position of the first.

    A fact repeats a first one whose day is at most `horizon` days from its own; beyond that, it is a first one itself.
    `held` are the keys, days and positions of facts placed before. A fact held at its own position repeats nothing,
    it is read again: its `duplicate_of` is NULL.
    """
    on = list(keys)
    repeated = facts.groupBy(*on).count().where("count > 1").select(*on)
    first = F.struct("position", F.col(day).alias("day"))
    known = held.join(facts.select(*on), on=on, how="left_semi").groupBy(*on).agg(F.collect_set(first).alias("held"))
    doubtful = facts.join(repeated.join(known, on=on, how="full_outer"), on=on)
    # Of a day, only the first can be a first one of its keys.
    of_day = F.min(F.struct("publish_time", "position")).over(Window.partitionBy(*on, day))
    of_days = F.collect_set(F.struct("of_day", day)).over(Window.partitionBy(*on))
    candidates = F.transform(
        F.array_sort("of_days"),
        lambda each: F.struct(each["of_day"]["position"].alias("position"), each[day].alias("day")),
    )

    def is_near(first: Column, day: Column) -> Column:
        return F.abs(F.date_diff(first["day"], day)) <= horizon

    def with_first(firsts: Column, fact: Column) -> Column:
        is_repeat = F.exists(firsts, lambda first: is_near(first, fact["day"]))
        return F.when(is_repeat, firsts).otherwise(F.array_append(firsts, fact))

    placed = F.array_sort(F.coalesce("held", F.array()))
    original = F.filter("firsts", lambda first: is_near(first, F.col(day)))[0]["position"]
    is_held = F.exists(placed, lambda each: each["position"] == F.col("position"))
    return (
        doubtful.withColumn("of_day", of_day)
        .withColumn("of_days", of_days)
        .withColumn("firsts", F.aggregate(candidates, placed, with_first))
        .withColumns({"original": original, "is_held": is_held})
        .where(F.col("is_held") | (F.col("original") != F.col("position")))
        .select(*facts.columns, F.when(~F.col("is_held"), F.col("original")).alias("duplicate_of"))
    )


def judge(facts: DataFrame, *, settings: Settings, enrichment: Enrichment, sources: Iterable[DataFrame]) -> DataFrame:
    """Adds the states of all lookups, and the reason if one is missing. `facts` are made of the rows of `sources`."""
    frames = list(sources)
    for lookup in enrichment.lookups:
        state = pin_table(facts.sparkSession, settings, lookup.table)
        keys = reduce(DataFrame.union, (each.select(lookup.on) for each in frames))
        merges = read_merges(state, lookup=lookup) if lookup.merged_into is not None else None
        facts = facts.transform(with_survivor, keys=keys, merges=merges, lookup=lookup)
        facts = facts.transform(with_state, state=state, lookup=lookup, occurred_at=enrichment.occurred_at)
    return facts.transform(with_missing, lookups=enrichment.lookups)


def with_survivor(facts: DataFrame, *, keys: DataFrame, merges: pa.Table | None, lookup: Lookup) -> DataFrame:
    """Adds `_<name>_key`, the key whose state the fact is joined with, and, where keys can merge, `<name>_merged`.

    `keys` are all that `facts` can have; `merges` are as `read_merges` has them, None if keys can't merge.
    """
    at = f"_{lookup.name}_key"
    if merges is None:
        return facts.withColumn(at, F.col(lookup.on))
    ways = survivors_of(keys.toDF("key"), merges=merges, limit=lookup.max_merges)
    is_way = F.col(lookup.on) == F.col("key")
    joined = facts.join(F.broadcast(ways.withColumnRenamed("merged", lookup.merged)), on=is_way, how="left")
    return joined.withColumn(at, F.coalesce("survivor", lookup.on)).drop("key", "survivor")


def with_state(facts: DataFrame, *, state: DataFrame, lookup: Lookup, occurred_at: str) -> DataFrame:
    """Adds the state's row as the struct `lookup.name`, and in `no_<name>` why it can't be used, or NULL.

    A latest state that was purged is what gold `was` made from, if the fact is there.
    """
    at = F.col(f"_{lookup.name}_key")
    row = F.struct(*(name for name in state.columns if name not in VALID)).alias(lookup.name)
    validity = VALID if lookup.is_as_of else ()
    kind = state.schema[lookup.key].dataType
    is_merged = lookup.merges_into(kind).isNotNull() if lookup.merged_into is not None else F.lit(False)
    rows = state.select(F.col(lookup.key).alias("_key"), row, is_merged.alias("_is_merged"), *validity)
    matches = at == F.col("_key")
    if lookup.is_as_of:
        matches = matches & was_valid(F.col(occurred_at))
    joined = facts.join(rows, on=matches, how="left").drop("_key", *validity)
    if not lookup.is_as_of and "was" in facts.columns:
        was, is_purged = F.col("was"), F.col("_is_purged")
        joined = joined.withColumn("_is_purged", F.col(lookup.name).isNull() & _was_used(at, lookup))
        joined = joined.withColumns({name: F.when(is_purged, was[name]).otherwise(F.col(name)) for name in lookup.adds})
    reason = F.when(F.col(lookup.name).isNull(), "missing").when(
        F.col(f"{lookup.name}.deleted_at") <= F.col(occurred_at), "deleted"
    )
    if lookup.merged_into is not None:
        too_long = f"merged through more than {lookup.max_merges} keys"
        no_way = F.when(F.array_contains(lookup.merged, at), "merged in a circle").otherwise(too_long)
        reason = F.when(F.col("_is_merged"), no_way).otherwise(reason)
    return joined.withColumn(f"no_{lookup.name}", reason).drop("_is_purged", "_is_merged")


def _was_used(key: Column, lookup: Lookup) -> Column:
    """Whether gold was made from the state of a key, or by way of it."""
    was = F.col("was")
    is_used = was[lookup.name][lookup.key] == key
    if lookup.merged_into is not None:
        is_used = is_used | F.array_contains(F.coalesce(was[lookup.merged], F.array()), key)
    return F.coalesce(is_used, F.lit(False))


def was_joined(enrichment: Enrichment) -> Column:
    """Over gold's columns: the latest states that a fact was joined with."""
    latest = (name for lookup in enrichment.lookups if not lookup.is_as_of for name in lookup.adds)
    return F.struct(F.lit(True).alias("in_gold"), *latest)


def with_missing(facts: DataFrame, *, lookups: Sequence[Lookup]) -> DataFrame:
    """Adds `reason`, and `missing_entity`, `_key` and `_merged`: of the first lookup without usable state, or NULLs."""

    def of_first(values: dict[str, Column]) -> Column:
        chosen = F.lit(None)
        for name, value in reversed(values.items()):
            chosen = F.when(F.col(f"no_{name}").isNotNull(), value).otherwise(chosen)
        return chosen

    def merged(lookup: Lookup) -> Column:
        keys = F.col(lookup.merged) if lookup.merged_into else F.lit(None)
        return keys.cast("array<string>")

    return facts.withColumns(
        {
            "reason": of_first({lookup.name: F.col(f"no_{lookup.name}") for lookup in lookups}),
            "missing_entity": of_first({lookup.name: F.lit(lookup.entity) for lookup in lookups}),
            "missing_key": of_first({lookup.name: F.col(f"_{lookup.name}_key").cast("string") for lookup in lookups}),
            "missing_merged": of_first({lookup.name: merged(lookup) for lookup in lookups}),
        }
    )


def was_valid(moment: Column) -> Column:
    """Whether a state, or a change of one, holds for a moment; one without `valid_from` is for all times."""
    since, until = F.col("valid_from"), F.col("valid_until")
    return (since.isNull() | (since <= moment)) & (until.isNull() | (moment < until))
