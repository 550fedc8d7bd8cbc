"""Any message is accepted or rejected as the oracle says, independently of others, and for a reason that is true."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoding import explain
from pulsar_lakehouse.gold.enrichment.facts import decode_facts
from pulsar_lakehouse.silver.merge import decode_changes
from tests.hostile import CORPUS, Hostile, hostile_messages
from tests.lake import bronze_row
from tests.reasons import is_true_of
from tests.shop import ENRICHMENTS, ENTITIES

ENTITY = {entity.name: entity for entity in ENTITIES}
[ORDERS] = ENRICHMENTS


def reasons(spark: SparkSession, sent: Sequence[Hostile]) -> dict[str, str | None]:
    """The reasons why messages are rejected, by message name; None for those that are accepted."""
    found: dict[str, str | None] = {}
    for topic in ("users", "items", "orders"):
        declared = ORDERS if topic == "orders" else ENTITY[topic]
        of_topic = [each for each in sent if each.topic == topic]
        rows = [bronze_row(each.message(place)) for place, each in enumerate(of_topic)]
        messages = spark.createDataFrame(rows, bronze_table(declared.topic).ddl)
        if topic == "orders":
            decoded = messages.transform(decode_facts, enrichment=ORDERS)
        else:
            decoded = messages.transform(decode_changes, entity=declared)
        explained = decoded.transform(explain, decoding=declared.decoding).orderBy("message.position").collect()
        found |= {each.name: row.reason for each, row in zip(of_topic, explained, strict=True)}
    return found


def test_each_message_is_taken_or_rejected_for_a_reason_that_is_true_of_it(spark: SparkSession) -> None:
    sent = [*CORPUS, *hostile_messages(seed=3, count=300)]
    found = reasons(spark, sent)
    wrong = {
        each.name: found[each.name]
        for each in sent
        if (found[each.name] is not None) != each.malformed
        or (found[each.name] is not None and not is_true_of(found[each.name] or "", each.message()))
    }
    assert wrong == {}
