"""Join facts with the latest state, exactly once: each message ends in gold, or in one of the quarantine tables.

Nothing here relies on the checkpoint for that. Whatever a batch finds already placed (it was run before, and killed
half-way, or its checkpoint was lost) it leaves where it is.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from gold.enrichment import ACTIONS, Enrichment, Lookup
from gold.survivors import ALWAYS, survivors_of
from lakehouse.decoding import MALFORMED, decode, quarantine_malformed
from lakehouse.settings import Settings
from lakehouse.tables import append, append_missing, create_table, delta_table, kept, pin_table, read_table

RETRIED = ("reason", "missing_entity", "missing_key", "missing_merged")
VALID = ("valid_from", "valid_until")
CHANGE = ("changed_entity", "changed_key", *VALID, "changed_at")


def enrich(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> DataStreamWriter:
    """The stream that places new facts, wakes those that wait for the state that just changed, and does what was asked.

    All come in one stream, so that they can't race: a batch joins with state at least as new as the changes it has
    seen, and a change that comes after finds the facts that this batch left waiting.
    """
    _create_tables(spark, settings, enrichment)
    messages = spark.readStream.format("delta").load(settings.table_path(enrichment.topic.bronze_table))
    facts = messages.transform(decode_facts, enrichment=enrichment)
    changes = [
        spark.readStream.format("delta")
        .option("readChangeFeed", True)
        .load(settings.table_path(lookup.table))
        .transform(changes_of, lookup=lookup)
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


def changes_of(feed: DataFrame, *, lookup: Lookup) -> DataFrame:
    """The keys whose state has changed, and for which times: of a latest state for all, which is NULL."""
    changed = feed.select(
        F.lit(lookup.entity).alias("changed_entity"),
        F.col(lookup.key).cast("string").alias("changed_key"),
        *(F.col(name) if lookup.is_as_of else F.lit(None).cast("timestamp").alias(name) for name in VALID),
        F.col("sequence.publish_time").alias("changed_at"),
        "_change_type",
    )
    # The rest of a history's changes are versions whose time ends where that of a new one begins.
    kinds = ("insert",) if lookup.is_as_of else ("insert", "update_postimage")
    is_ever = F.coalesce(F.col("valid_from") < F.col("valid_until"), F.lit(True))
    return changed.where(F.col("_change_type").isin(*kinds) & is_ever).drop("_change_type")


def enrich_batch(settings: Settings, enrichment: Enrichment, batch: DataFrame) -> None:
    """Place the facts of a batch, and judge those again that its changes of state, or what was asked, concern."""
    spark = batch.sparkSession
    with ExitStack() as stack:
        rows = stack.enter_context(kept(batch))
        rejected, given_up = rows.where("reason IS NOT NULL"), rows.where("action = 'discard'")
        [seen] = rows.selectExpr(
            "bool_or(reason IS NOT NULL) AS rejected",
            "bool_or(action = 'discard') AS given_up",
            "string(to_date(min(valid_from))) AS changed_since",
        ).collect()
        if seen.rejected:
            quarantine_malformed(settings, enrichment.topic, rejected)
        if seen.given_up:
            _discard(spark, settings, enrichment, given_up)
        gold = pin_table(spark, settings, enrichment.gold_table)
        waiting = pin_table(spark, settings, enrichment.waiting.name)
        recent = gold.where(F.col(enrichment.day) >= F.lit(seen.changed_since).cast("date"))
        outdated = stack.enter_context(kept(recent.transform(outdated_by, changes=rows, enrichment=enrichment)))
        to_wake = waiting.transform(waiting_for, changes=rows, outdated=outdated, enrichment=enrichment)
        woken = stack.enter_context(kept(to_wake))
        facts = facts_of(rows, enrichment)
        near = _near([facts, woken, outdated], enrichment)
        if near is None:
            return
        placed = [*enrichment.keys, "position"]
        in_gold = gold.where(near()).select(*placed, answers(enrichment).alias("held"))
        discarded = read_table(spark, settings, enrichment.discarded.name)
        elsewhere = (table.where(near()).select(*placed) for table in (waiting, discarded))
        held = reduce(DataFrame.union, elsewhere, in_gold.select(*placed))
        with kept(facts.transform(find_repeats, held=held, keys=enrichment.keys)) as repeats:
            fresh = facts.join(repeats.select("position"), on="position", how="left_anti")
            again = woken.transform(judged_again, outdated=outdated, in_gold=in_gold, columns=facts.columns)
            judged = fresh.withColumn("is_waiting", F.lit(False)).unionByName(again, allowMissingColumns=True)
            for lookup in enrichment.lookups:
                state = pin_table(spark, settings, lookup.table)
                keys = reduce(DataFrame.union, (each.select(lookup.on) for each in (facts, woken, outdated)))
                occurred_at = enrichment.occurred_at
                judged = judged.transform(with_survivor, keys=keys, state=state, lookup=lookup, occurred_at=occurred_at)
                judged = judged.transform(with_state, state=state, lookup=lookup, occurred_at=occurred_at)
            judged = judged.transform(with_missing, lookups=enrichment.lookups)
            judged = judged.withColumn("is_settled", F.col("held").eqNullSafe(answers(enrichment)))
            _write_gold(settings, enrichment, judged)
            _settle_waiting(spark, settings, enrichment, judged)
            _correct_gold(spark, settings, enrichment, judged, near)
            _write_duplicates(settings, enrichment, repeats)


def facts_of(batch: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The facts of a batch that keep their contract."""
    valid = F.col("message").isNotNull() & F.col("reason").isNull()
    return batch.where(valid).select(*enrichment.columns, enrichment.day, "message.position", "message.publish_time")


def outdated_by(gold: DataFrame, *, changes: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The facts in gold that were joined with state which has changed since, as of when they occurred; and `held`."""
    occurred_at = F.col(enrichment.occurred_at)
    facts = [*map(F.col, (*enrichment.columns, "position", enrichment.day)), answers(enrichment).alias("held")]
    found = [gold.where("false").select(*facts)]
    for lookup in enrichment.lookups:
        if lookup.is_as_of:
            merged = F.col(lookup.merged) if lookup.merged_into else F.lit(None)
            keys = F.array_append(F.coalesce(merged, F.array()), F.col(lookup.name)[lookup.key])
            by_key = gold.select(*facts, F.explode(keys.cast("array<string>")).alias("used_key"))
            late = F.make_dt_interval(F.lit(enrichment.correct_for))
            changed = changes.select(*CHANGE).where(F.col("changed_entity") == lookup.entity)
            is_hit = (F.col("used_key") == F.col("changed_key")) & _was_valid(occurred_at)
            in_time = occurred_at > F.col("changed_at") - late
            found.append(by_key.join(changed, on=is_hit & in_time, how="left_semi").drop("used_key"))
    every = reduce(DataFrame.union, found)
    return every.dropDuplicates(["position"])


def waiting_for(waiting: DataFrame, *, changes: DataFrame, outdated: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The waiting facts that were released, or for which a key has changed: the missing one, or a merged one before it.

    A change does not wake what has waited for more than `give_up_after` days. One that is among the `outdated` ones
    was on its way from there to here when a batch ended early.
    """
    patience = F.make_dt_interval(F.lit(enrichment.give_up_after))
    in_time = waiting.where(F.col("waiting_since") > F.current_timestamp() - patience)
    awaited = F.array_append(F.coalesce("missing_merged", F.array()), F.col("missing_key"))
    by_key = in_time.select("position", enrichment.occurred_at, "missing_entity", F.explode(awaited).alias("awaited"))
    is_awaited = (F.col("changed_entity") == F.col("missing_entity")) & (F.col("changed_key") == F.col("awaited"))
    # The batch's changes are many, those that anything waits for few.
    wanted = by_key.select("missing_entity", "awaited").distinct()
    found = changes.select(*CHANGE).where("changed_key IS NOT NULL").join(wanted, on=is_awaited, how="left_semi")
    is_hit = is_awaited & _was_valid(F.col(enrichment.occurred_at))
    woken = by_key.join(found, on=is_hit, how="left_semi").select("position")
    released = changes.where("action = 'release'").select(F.col("action_position").alias("position"))
    return waiting.join(woken.union(released).union(outdated.select("position")), on="position", how="left_semi")


def _was_valid(moment: Column) -> Column:
    """Whether a state, or a change of one, holds for a moment; one without `valid_from` is for all times."""
    since, until = F.col("valid_from"), F.col("valid_until")
    return (since.isNull() | (since <= moment)) & (until.isNull() | (moment < until))


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


def judged_again(woken: DataFrame, *, outdated: DataFrame, in_gold: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Woken and outdated facts as candidates. Woken ones can be in gold too, if a batch ended before it was done."""
    held = in_gold.select("position", "held")
    waiting = woken.join(held, on="position", how="left").withColumn("is_waiting", F.lit(True))
    others = outdated.join(woken.select("position"), on="position", how="left_anti")
    both = waiting.unionByName(others.withColumn("is_waiting", F.lit(False)), allowMissingColumns=True)
    return both.select(*(name for name in columns if name != "publish_time"), "held", "is_waiting")


def answers(enrichment: Enrichment) -> Column:
    """Which state a fact is joined with, as far as that can be corrected."""
    parts = [F.lit(True).alias("in_gold")]
    for lookup in enrichment.lookups:
        if lookup.is_as_of:
            parts.append(F.col(lookup.name)["sequence"].alias(lookup.name))
            if lookup.merged_into:
                parts.append(F.col(lookup.merged))
    return F.struct(*parts)


def with_survivor(
    facts: DataFrame, *, keys: DataFrame, state: DataFrame, lookup: Lookup, occurred_at: str
) -> DataFrame:
    """Adds `_<name>_key`, the key whose state the fact is joined with, and, where keys can merge, `<name>_merged`.

    `keys` are all that `facts` can have.
    """
    at = f"_{lookup.name}_key"
    if lookup.merged_into is None:
        return facts.withColumn(at, F.col(lookup.on))
    since, until = (F.lit(end) for end in ALWAYS)
    if lookup.is_as_of:
        since, until = F.unix_micros("valid_from"), F.coalesce(F.unix_micros("valid_until"), until)
    times = {"since": since, "until": until}
    merges = state.select(
        F.col(lookup.key).alias("key"),
        F.expr(lookup.merged_into).alias("into"),
        *(column.alias(name) for name, column in times.items()),
    )
    ways = survivors_of(keys.toDF("key"), merges=merges.where("into IS NOT NULL AND since < until"))
    moment = F.unix_micros(occurred_at)
    is_way = (F.col(lookup.on) == F.col("key")) & (F.col("since") <= moment) & (moment < F.col("until"))
    joined = facts.join(F.broadcast(ways.withColumnRenamed("merged", lookup.merged)), on=is_way, how="left")
    return joined.withColumn(at, F.coalesce("survivor", lookup.on)).drop("key", "since", "until", "survivor")


def with_state(facts: DataFrame, *, state: DataFrame, lookup: Lookup, occurred_at: str) -> DataFrame:
    """Adds the state's row as the struct `lookup.name`, and in `no_<name>` why it can't be used, or NULL."""
    at = F.col(f"_{lookup.name}_key")
    row = F.struct(*(name for name in state.columns if name not in VALID)).alias(lookup.name)
    validity = VALID if lookup.is_as_of else ()
    rows = state.select(F.col(lookup.key).alias("_key"), row, *validity)
    matches = at == F.col("_key")
    if lookup.is_as_of:
        matches = matches & _was_valid(F.col(occurred_at))
    joined = facts.join(rows, on=matches, how="left").drop("_key", *validity)
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


def _near(facts: Sequence[DataFrame], enrichment: Enrichment) -> Callable[..., Column] | None:
    """Where facts with the same keys can be: bounds on days and keys that skip most files. None without facts.

    They are for the columns of a table, or with its name as prefix.
    """
    columns = [enrichment.day, *enrichment.keys]
    rows = reduce(DataFrame.union, (each.select(*columns) for each in facts))
    bounds = rows.agg(*(F.struct(F.min(name).alias("low"), F.max(name).alias("high")).alias(name) for name in columns))
    found = bounds.first()
    if found is None or found[enrichment.day].low is None:
        return None
    # Spark's dates go on where Python's end, and it takes the year 1 from Python as text only.
    low, high = (F.lit(day.isoformat()).cast("date") for day in found[enrichment.day])
    horizon = enrichment.duplicate_horizon

    def within(prefix: str = "") -> Column:
        day = F.col(prefix + enrichment.day).between(F.date_sub(low, horizon), F.date_add(high, horizon))
        keys = (F.col(prefix + key).between(F.lit(found[key].low), F.lit(found[key].high)) for key in enrichment.keys)
        return reduce(Column.__and__, keys, day)

    return within


def _write_gold(settings: Settings, enrichment: Enrichment, judged: DataFrame) -> None:
    complete = judged.where("missing_entity IS NULL AND held IS NULL")
    states = enrichment.states
    append(complete.select(*enrichment.columns, *states, "position", enrichment.day), settings, enrichment.gold_table)


def _settle_waiting(spark: SparkSession, settings: Settings, enrichment: Enrichment, judged: DataFrame) -> None:
    """Facts without state begin to wait, or wait on; those that are complete, or in gold as they should, do no more."""
    outcome = judged.where("is_waiting OR (missing_entity IS NOT NULL AND NOT is_settled)").select(
        *enrichment.columns,
        "position",
        enrichment.day,
        *RETRIED,
        F.lit(1).alias("attempts"),
        F.current_timestamp().alias("waiting_since"),
        "is_waiting",
        (F.col("missing_entity").isNull() | F.col("is_settled")).alias("is_done"),
    )
    with kept(outcome) as rows:
        kinds = {row.is_waiting for row in rows.select("is_waiting").distinct().collect()}
        if False in kinds:
            append(rows.where("NOT is_waiting").drop("is_waiting", "is_done"), settings, enrichment.waiting.name)
        if True in kinds:
            retry: dict[str, str | Column] = {name: f"new.{name}" for name in RETRIED}
            (
                delta_table(spark, settings, enrichment.waiting.name)
                .alias("held")
                .merge(rows.where("is_waiting").alias("new"), "held.position = new.position")
                .whenMatchedDelete("new.is_done")
                .whenMatchedUpdate(set=retry | {"attempts": "held.attempts + 1"})
                .execute()
            )


def _correct_gold(
    spark: SparkSession, settings: Settings, enrichment: Enrichment, judged: DataFrame, near: Callable[..., Column]
) -> None:
    """Facts in gold get the state that they should have had; those that wait for it now leave gold, last of all."""
    corrections = judged.where("held IS NOT NULL AND NOT is_settled").select(
        "position", *enrichment.states, F.col("missing_entity").isNotNull().alias("is_waiting_now")
    )
    with kept(corrections) as rows:
        if rows.isEmpty():
            return
        (
            delta_table(spark, settings, enrichment.gold_table)
            .alias("held")
            .merge(rows.alias("new"), near("held.") & F.expr("held.position = new.position"))
            .whenMatchedDelete("new.is_waiting_now")
            .whenMatchedUpdate(set={name: f"new.{name}" for name in enrichment.states})
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


def _create_tables(spark: SparkSession, settings: Settings, enrichment: Enrichment) -> None:
    states: dict[str, str] = {}
    for lookup in enrichment.lookups:
        schema = read_table(spark, settings, lookup.table).drop(*VALID).schema
        states[lookup.name] = schema.simpleString()
        if lookup.merged_into is not None:
            states[lookup.merged] = f"array<{schema[lookup.key].dataType.simpleString()}>"
    quarantine = (enrichment.waiting, enrichment.duplicates, enrichment.discarded, ACTIONS, MALFORMED)
    for table in (enrichment.gold(states), *quarantine):
        create_table(spark, settings, table)
