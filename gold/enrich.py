"""Join facts with the latest state, exactly once: each message ends in gold, or in one of the quarantine tables.

Nothing here relies on the checkpoint for that. Whatever a batch finds already placed (it was run before, and killed
half-way, or its checkpoint was lost) it leaves where it is.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from gold.enrichment import ACTIONS, Enrichment, Lookup
from gold.survivors import survivors_of
from lakehouse.decoding import MALFORMED, decode, quarantine_malformed
from lakehouse.settings import Settings
from lakehouse.tables import POSITION, append, append_missing, create_table, delta_table, kept, pin_table, read_table

RETRIED = ("reason", "missing_entity", "missing_key", "missing_merged")
CHANGED = "_change_type IN ('insert', 'update_postimage')"
NOTHING_ELSE = f"changed_entity STRING, changed_key STRING, action STRING, action_position {POSITION}"


def enrich(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> DataStreamWriter:
    """The stream that places new facts, wakes those that wait for the state that just changed, and does what was asked.

    All come in one stream, so that they can't race: a batch joins with state at least as new as the changes it has
    seen, and a change that comes after finds the facts that this batch left waiting.
    """
    create_tables(spark, settings, enrichment)
    messages = spark.readStream.format("delta").load(settings.table_path(enrichment.topic.bronze_table))
    facts = messages.transform(decode_facts, enrichment=enrichment)
    changes = [
        spark.readStream.format("delta")
        .option("readChangeFeed", True)
        .load(settings.table_path(lookup.table))
        .where(CHANGED)
        .select(F.lit(lookup.entity).alias("changed_entity"), F.col(lookup.key).cast("string").alias("changed_key"))
        for lookup in enrichment.lookups
    ]
    asked = (
        spark.readStream.format("delta")
        .load(settings.table_path(ACTIONS.name))
        .where(F.col("topic") == enrichment.topic.name)
        .select("action", F.col("position").alias("action_position"))
    )
    stream = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), [facts, *changes, asked])
    return (
        stream.writeStream.queryName(f"enrich {enrichment.topic.name}")
        .foreachBatch(lambda batch, _: enrich_batch(settings, enrichment, batch))
        .option("checkpointLocation", settings.checkpoint_path(enrichment.gold_table))
    )


def decode_facts(messages: DataFrame, *, enrichment: Enrichment) -> DataFrame:
    """Messages as facts with `message`, `reason` and `day`; a tombstone is rejected, facts are not deleted."""
    reject = F.when(F.col("message.is_tombstone"), "tombstone: a fact can't be deleted")
    for column in (*enrichment.keys, enrichment.occurred_at):  # without these, a fact can't be told from others
        reject = reject.when(F.col(column).isNull(), f"{column} is NULL")
    decoded = messages.transform(decode, topic=enrichment.topic, columns=enrichment.columns, reject=reject)
    return decoded.withColumn(enrichment.day, F.to_date(enrichment.occurred_at))


def enrich_batch(settings: Settings, enrichment: Enrichment, batch: DataFrame) -> None:
    """Place the facts of a batch, and those that waited for the keys it says have changed."""
    spark = batch.sparkSession
    with ExitStack() as stack:
        rows = stack.enter_context(kept(batch))
        rejected, given_up = rows.where("reason IS NOT NULL"), rows.where("action = 'discard'")
        any_of = ("bool_or(reason IS NOT NULL) AS rejected", "bool_or(action = 'discard') AS given_up")
        [seen] = rows.selectExpr(*any_of).collect()
        if seen.rejected:
            quarantine_malformed(settings, enrichment.topic, rejected)
        if seen.given_up:
            _discard(spark, settings, enrichment, given_up)
        waiting = pin_table(spark, settings, enrichment.waiting.name)
        to_wake = waiting.transform(waiting_for, changes=rows, give_up_after=enrichment.give_up_after)
        woken = stack.enter_context(kept(to_wake))
        facts = facts_of(rows, enrichment)
        near = _near(facts, woken, enrichment)
        if near is None:
            return
        placed = [*enrichment.keys, "position"]
        in_gold = pin_table(spark, settings, enrichment.gold_table).where(near).select(*placed)
        discarded = read_table(spark, settings, enrichment.discarded.name)
        held = in_gold.union(waiting.where(near).select(*placed)).union(discarded.where(near).select(*placed))
        with kept(facts.transform(find_repeats, held=held, keys=enrichment.keys)) as repeats:
            fresh = facts.join(repeats.select("position"), on="position", how="left_anti")
            candidates = (
                fresh.drop("publish_time")
                .withColumns({"is_woken": F.lit(False), "is_in_gold": F.lit(False)})
                .unionByName(woken.transform(with_is_in_gold, in_gold=in_gold, columns=facts.columns))
            )
            judged = candidates
            for lookup in enrichment.lookups:
                state = pin_table(spark, settings, lookup.table)
                keys = facts.select(F.col(lookup.on).alias("key")).union(woken.select(lookup.on))
                judged = judged.transform(with_survivor, keys=keys, state=state, lookup=lookup)
                judged = judged.transform(with_state, state=state, lookup=lookup, occurred_at=enrichment.occurred_at)
            judged = judged.transform(with_missing, lookups=enrichment.lookups)
            _write_gold(settings, enrichment, judged)
            _settle_waiting(spark, settings, enrichment, judged)
            _write_duplicates(settings, enrichment, repeats)


def enrich_messages(settings: Settings, enrichment: Enrichment, messages: DataFrame) -> None:
    """Place messages of the facts' topic as a batch of their own, in which nothing has changed or is asked for."""
    facts = messages.transform(decode_facts, enrichment=enrichment)
    nothing = messages.sparkSession.createDataFrame([], NOTHING_ELSE)
    enrich_batch(settings, enrichment, facts.unionByName(nothing, allowMissingColumns=True))


def facts_of(batch: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The facts of a batch that keep their contract."""
    valid = F.col("message").isNotNull() & F.col("reason").isNull()
    return batch.where(valid).select(*enrichment.columns, enrichment.day, "message.position", "message.publish_time")


def waiting_for(waiting: DataFrame, *, changes: DataFrame, give_up_after: int) -> DataFrame:
    """The waiting facts that were released, or for which a key has changed: the missing one, or a merged one before it.

    A change does not wake what has waited for more than `give_up_after` days.
    """
    in_time = waiting.where(F.col("waiting_since") > F.current_timestamp() - F.make_dt_interval(F.lit(give_up_after)))
    awaited = F.concat(F.array("missing_key"), F.coalesce("missing_merged", F.array()))
    by_key = in_time.select("position", F.col("missing_entity").alias("entity"), F.explode(awaited).alias("key"))
    changed = changes.where("changed_key IS NOT NULL").select(
        F.col("changed_entity").alias("entity"), F.col("changed_key").alias("key")
    )
    # The batch's changes are many, those that anything waits for few.
    wanted = by_key.select("entity", "key").distinct()
    found = changed.join(wanted, on=["entity", "key"], how="left_semi").distinct()
    woken = by_key.join(found, on=["entity", "key"], how="left_semi").select("position")
    released = changes.where("action = 'release'").select(F.col("action_position").alias("position"))
    return waiting.join(woken.union(released), on="position", how="left_semi")


def find_repeats(facts: DataFrame, *, held: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The facts that are not the first of their keys, with `duplicate_of`: the position of the first.

    `held` are the keys and positions of facts placed before. A fact held at its own position repeats nothing, it is
    read again: its `duplicate_of` is NULL.
    """
    repeated = facts.groupBy(*keys).count().where("count > 1").select(*keys)
    first = (
        facts.join(repeated, on=list(keys), how="left_semi")
        .groupBy(*keys)
        .agg(F.min(F.struct("publish_time", "position"))["position"].alias("first"))
    )
    # Keys can be held more than once: by what a crash left in two tables, and by facts far apart in time.
    known = (
        facts.select(*keys, "position")
        .join(held.withColumnRenamed("position", "held"), on=list(keys))
        .groupBy("position")
        .agg(F.min("held").alias("held"), F.bool_or(F.col("held") == F.col("position")).alias("is_held"))
    )
    original = F.when(~F.coalesce("is_held", F.lit(False)), F.coalesce("held", "first"))
    return (
        facts.join(known, on="position", how="left")
        .join(first, on=list(keys), how="left")
        .where(F.col("held").isNotNull() | (F.col("first") != F.col("position")))
        .select(*facts.columns, F.nullif(original, F.col("position")).alias("duplicate_of"))
    )


def with_is_in_gold(woken: DataFrame, *, in_gold: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Woken facts as candidates; one that is in gold already was woken before, by a batch that did not end."""
    present = in_gold.select("position", F.lit(True).alias("is_in_gold"))
    return woken.join(present, on="position", how="left").select(
        *(column for column in columns if column != "publish_time"),
        F.lit(True).alias("is_woken"),
        F.coalesce("is_in_gold", F.lit(False)).alias("is_in_gold"),
    )


def with_survivor(facts: DataFrame, *, keys: DataFrame, state: DataFrame, lookup: Lookup) -> DataFrame:
    """Adds `_<name>_key`, the key whose state the fact is joined with, and, where keys can merge, `<name>_merged`.

    `keys` are all that `facts` can have.
    """
    at = f"_{lookup.name}_key"
    if lookup.merged_into is None:
        return facts.withColumn(at, F.col(lookup.on))
    merges = state.select(F.col(lookup.key).alias("key"), F.expr(lookup.merged_into).alias("merged_into"))
    survivors = survivors_of(keys, merges=merges.where("merged_into IS NOT NULL")).select(
        F.col("key").alias(lookup.on), F.col("survivor").alias("_survivor"), F.col("merged").alias(lookup.merged)
    )
    joined = facts.join(F.broadcast(survivors), on=lookup.on, how="left")
    return joined.withColumn(at, F.coalesce("_survivor", lookup.on)).drop("_survivor")


def with_state(facts: DataFrame, *, state: DataFrame, lookup: Lookup, occurred_at: str) -> DataFrame:
    """Adds the state's row as the struct `lookup.name`, and in `no_<name>` why it can't be used, or NULL."""
    at = F.col(f"_{lookup.name}_key")
    rows = state.select(F.col(lookup.key).alias("_key"), F.struct(*state.columns).alias(lookup.name))
    joined = facts.join(rows, on=at == F.col("_key"), how="left").drop("_key")
    reason = F.when(F.col(lookup.name).isNull(), "missing").when(
        F.col(f"{lookup.name}.deleted_at") <= F.col(occurred_at), "deleted"
    )
    if lookup.merged_into is not None:
        reason = F.when(F.array_contains(lookup.merged, at), "merged in a circle").otherwise(reason)
    return joined.withColumn(f"no_{lookup.name}", reason)


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


def _near(facts: DataFrame, woken: DataFrame, enrichment: Enrichment) -> Column | None:
    """Where facts with the same keys can be: bounds on days and keys that skip most files. None without facts."""
    columns = [enrichment.day, *enrichment.keys]
    rows = facts.select(*columns).union(woken.select(*columns))
    bounds = rows.agg(*(F.struct(F.min(name).alias("low"), F.max(name).alias("high")).alias(name) for name in columns))
    found = bounds.first()
    if found is None or found[enrichment.day].low is None:
        return None
    # Spark's dates go on where Python's end, and it takes the year 1 from Python as text only.
    low, high = (F.lit(day.isoformat()).cast("date") for day in found[enrichment.day])
    horizon = enrichment.duplicate_horizon
    within = F.col(enrichment.day).between(F.date_sub(low, horizon), F.date_add(high, horizon))
    for name in enrichment.keys:
        within = within & F.col(name).between(F.lit(found[name].low), F.lit(found[name].high))
    return within


def _write_gold(settings: Settings, enrichment: Enrichment, judged: DataFrame) -> None:
    states = [name for lookup in enrichment.lookups for name in lookup.adds]
    complete = judged.where("missing_entity IS NULL AND NOT is_in_gold")
    append(complete.select(*enrichment.columns, *states, "position", enrichment.day), settings, enrichment.gold_table)


def _settle_waiting(spark: SparkSession, settings: Settings, enrichment: Enrichment, judged: DataFrame) -> None:
    """Facts without state begin to wait, or wait on; woken facts that are in gold now wait no more."""
    outcome = judged.where("missing_entity IS NOT NULL OR is_woken").select(
        *enrichment.columns,
        "position",
        enrichment.day,
        "reason",
        "missing_entity",
        "missing_key",
        "missing_merged",
        F.lit(1).alias("attempts"),
        F.current_timestamp().alias("waiting_since"),
        "is_woken",
        (F.col("missing_entity").isNull() | F.col("is_in_gold")).alias("is_done"),
    )
    with kept(outcome) as rows:
        kinds = {row.is_woken for row in rows.select("is_woken").distinct().collect()}
        if False in kinds:
            append(rows.where("NOT is_woken").drop("is_woken", "is_done"), settings, enrichment.waiting.name)
        if True in kinds:
            retry: dict[str, str | Column] = {name: f"new.{name}" for name in RETRIED}
            (
                delta_table(spark, settings, enrichment.waiting.name)
                .alias("held")
                .merge(rows.where("is_woken").alias("new"), "held.position = new.position")
                .whenMatchedDelete("new.is_done")
                .whenMatchedUpdate(set=retry | {"attempts": "held.attempts + 1"})
                .execute()
            )


def _discard(spark: SparkSession, settings: Settings, enrichment: Enrichment, given_up: DataFrame) -> None:
    """Move the waiting facts that were given up; those that wait no more stay where they are."""
    asked = given_up.select(F.col("action_position").alias("position")).distinct()
    waiting = pin_table(spark, settings, enrichment.waiting.name)
    with kept(waiting.join(asked, on="position", how="left_semi").select(*waiting.columns)) as rows:
        append_missing(rows, settings, enrichment.discarded.name, on=["position"])
        (
            delta_table(spark, settings, enrichment.waiting.name)
            .alias("held")
            .merge(rows.select("position").alias("new"), "held.position = new.position")
            .whenMatchedDelete()
            .execute()
        )


def _write_duplicates(settings: Settings, enrichment: Enrichment, repeats: DataFrame) -> None:
    duplicates = repeats.where("duplicate_of IS NOT NULL").select(
        *enrichment.columns, "position", "duplicate_of", F.current_timestamp().alias("found_at")
    )
    if not duplicates.isEmpty():
        append_missing(duplicates, settings, enrichment.duplicates.name, on=["position"])


def create_tables(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> None:
    states: dict[str, str] = {}
    for lookup in enrichment.lookups:
        schema = read_table(spark, settings, lookup.table).schema
        states[lookup.name] = schema.simpleString()
        if lookup.merged_into is not None:
            states[lookup.merged] = f"array<{schema[lookup.key].dataType.simpleString()}>"
    quarantine = (enrichment.waiting, enrichment.duplicates, enrichment.discarded, ACTIONS, MALFORMED)
    for table in (enrichment.gold(states), *quarantine):
        create_table(spark, settings, table)
