"""Decode the messages of a topic as facts, and reject those that break the contract or a check."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_lakehouse.contracts.checks import Mode, failed, of_mode, resolve
from pulsar_lakehouse.contracts.decoding import JUDGED, decode
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment


def decode_facts(messages: DataFrame, *, enrichment: Enrichment) -> DataFrame:
    """Messages as facts, with `message`, `reason` and the day column. The reason is NULL for valid facts.

    Rejects tombstones, because facts can't be deleted, and messages that fail a check whose mode is quarantine: the
    reason names all of these. Raises ConfigurationError if Spark can't resolve the SQL of a column or of such a check.
    """
    reject = F.when(F.col("message.is_tombstone"), "tombstone: a fact can't be deleted")
    # Without these, a fact can't be identified or dated.
    for column in dict.fromkeys((*enrichment.keys, enrichment.event_time)):
        reject = reject.when(F.col(column).isNull(), f"{column} is NULL")
    checks = of_mode(enrichment.checks, Mode.QUARANTINE)
    if checks:
        resolve(checks, over=enrichment.decoding.schema, within=enrichment.topic.name)
        names = failed(checks, given=JUDGED)
        reject = reject.when(names != "", F.concat(F.lit("fails "), names))
    decoded = messages.transform(decode, decoding=enrichment.decoding, reject=reject)
    return decoded.withColumn(enrichment.day, F.to_date(enrichment.event_time))


def valid_facts(decoded: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The decoded messages that keep the contract and the checks, as facts with position and publish time."""
    columns = (*enrichment.columns, enrichment.day, "message.position", "message.publish_time")
    return decoded.where("reason IS NULL").select(*columns)
