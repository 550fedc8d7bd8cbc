"""Decode the messages of a topic as facts, and reject those that break the contract or a rule."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gold.enrichment.declaration import Enrichment
from lakehouse.contracts.decoding import decode
from lakehouse.spark.declared_sql import naming, try_eval


def decode_facts(messages: DataFrame, *, enrichment: Enrichment) -> DataFrame:
    """Messages as facts, with `message`, `reason` and the day column. The reason is NULL for valid facts.

    Rejects tombstones, because facts can't be deleted, and messages that fail rules: the reason names all of these.
    Raises ConfigurationError if Spark can't resolve the SQL of a column or a rule.
    """
    reject = F.when(F.col("message.is_tombstone"), "tombstone: a fact can't be deleted")
    # Without these, a fact can't be identified or dated.
    for column in dict.fromkeys((*enrichment.keys, enrichment.event_time)):
        reject = reject.when(F.col(column).isNull(), f"{column} is NULL")
    rules = {f"{enrichment.topic.name}: rule {name}": sql for name, sql in enrichment.rules.items()}
    with naming(messages.sparkSession.createDataFrame([], enrichment.decoding.schema), rules):
        if enrichment.rules:
            failed = failed_rules(enrichment.rules)
            reject = reject.when(failed != "", F.concat(F.lit("fails "), failed))
        decoded = messages.transform(decode, decoding=enrichment.decoding, reject=reject)
    return decoded.withColumn(enrichment.day, F.to_date(enrichment.event_time))


def failed_rules(rules: Mapping[str, str]) -> Column:
    """The names of the rules that are not TRUE for a row, joined by commas; empty if all are TRUE.

    A rule that ends in an error is not TRUE. Use it within a branch, like `try_eval`.
    """
    is_true = {name: F.coalesce(try_eval(F.expr(sql)), F.lit(False)) for name, sql in rules.items()}
    return F.concat_ws(", ", *(F.when(~holds, name) for name, holds in is_true.items()))


def valid_facts(decoded: DataFrame, enrichment: Enrichment) -> DataFrame:
    """The decoded messages that keep the contract and the rules, as facts with position and publish time."""
    columns = (*enrichment.columns, enrichment.day, "message.position", "message.publish_time")
    return decoded.where("reason IS NULL").select(*columns)
