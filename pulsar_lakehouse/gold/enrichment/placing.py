"""Stages of a batch that place its own messages: new facts, and those that are rejected."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.malformed import is_same_row, position_in, quarantine_malformed
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.duplicates import find_duplicates, repeated_keys
from pulsar_lakehouse.gold.enrichment.events import REJECTED, Batch, facts_among, is_event
from pulsar_lakehouse.gold.enrichment.lookups import look_up
from pulsar_lakehouse.gold.enrichment.writes import placed_keys, placed_of, pruning_filter, write_duplicates, write_new
from pulsar_lakehouse.limits import FEW
from pulsar_lakehouse.spark.frames import cached
from pulsar_lakehouse.tables.lake import Lake


def place_new(batch: Batch) -> None:
    """Place the facts that are not placed yet: in gold, with the waiting facts, or with the duplicates."""
    enrichment, number, keys = batch.enrichment, batch.summary.facts, list(batch.enrichment.keys)
    facts = facts_among(batch.events, enrichment)
    with batch.lake.sized(batch.summary.events, batch.events) as lake, _placed(lake, batch, facts) as placed:
        look_up_state = partial(look_up, lake=lake, enrichment=enrichment, source=facts, number=number)
        with cached(repeated_keys(facts, placed=placed, keys=keys)) as repeated:
            if not repeated.count():
                write_new(lake, enrichment, facts.transform(look_up_state), number=number)
                return
            suspects = facts.join(repeated, on=keys, how="left_semi")
            with cached(suspects.transform(find_duplicates, placed=placed, enrichment=enrichment)) as duplicates:
                if (repeats := duplicates.count()) < number:
                    fresh = facts.join(duplicates.select("position"), on="position", how="left_anti")
                    write_new(lake, enrichment, fresh.transform(look_up_state), number=number)
                if repeats:
                    with lake.sized(repeats, duplicates, interpreted=True) as sized:
                        write_duplicates(sized, enrichment, duplicates, are_new=batch.is_new)


@contextmanager
def _placed(lake: Lake, batch: Batch, facts: DataFrame) -> Iterator[DataFrame]:
    """The keys, days and positions of placed facts that have the keys of these."""
    enrichment, keys = batch.enrichment, facts.select(*batch.enrichment.keys)
    pruning = pruning_filter(batch.summary.bounds, enrichment)
    if batch.summary.facts <= FEW:
        yield placed_of(keys, lake, enrichment, pruning)
        return
    near = placed_keys(lake, enrichment, pruning)
    with cached(near.join(keys, on=keys.columns, how="left_semi")) as placed:
        yield placed


def quarantine_rejected(batch: Batch) -> None:
    """Quarantine rejected messages, except those that are placed already because older checks accepted them."""
    rejected, enrichment = batch.events.where(is_event(REJECTED)), batch.enrichment
    # Cached, and so a plan of its own: for the search, which can read much, code is generated.
    with batch.lake.sized(batch.summary.events, batch.events) as lake:
        search = partial(not_placed, lake, enrichment, rejected, since=batch.summary.rejected_since or 0)
        others = nullcontext(rejected) if batch.is_new else cached(search())
        with others as rows, lake.sized(batch.summary.rejected, interpreted=True) as sized:
            quarantine_malformed(sized, enrichment.decoding, rows, are_new=batch.is_new)


def not_placed(lake: Lake, enrichment: Enrichment, rejected: DataFrame, *, since: int) -> DataFrame:
    """The rejected messages that are in no table. None of them has a ledger before `since`: it limits the search."""
    newer, topic = F.col("position.ledger_id") >= since, enrichment.topic
    tables = [lake.table(name).pin().rows.where(newer).select("position") for name in enrichment.places]
    if topic.rows:  # then a message can be there in part
        malformed = lake.table(MALFORMED.name).pin().rows.where(F.col("topic") == topic.name)
        tables.append(malformed.where(newer).select(position_in(topic)))
    is_placed = is_same_row(F.col("position"), F.col("_placed"), topic)
    placed = reduce(DataFrame.union, tables).withColumnRenamed("position", "_placed")
    placed = placed.join(rejected.select("position"), on=is_placed, how="left_semi")
    return rejected.join(placed, on=is_placed, how="left_anti")
