"""Topics as others have them land: with transactions, encrypted, compacted, or without one of their partitions."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.bronze.compaction import with_compacted
from pulsar_lakehouse.bronze.decryption import decrypted
from pulsar_lakehouse.bronze.pulsar.encryption import ENCRYPTION
from pulsar_lakehouse.bronze.reach import Reach
from pulsar_lakehouse.bronze.small_backlogs import land_small_backlog
from pulsar_lakehouse.bronze.warehouse_claims import claim_subscription
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.reconciliation import Reconciliation
from pulsar_lakehouse.tables.lake import Lake
from tests.bronze.broker_topics import Topics
from tests.bronze.pulsar.test_compacted import compact
from tests.bronze.pulsar.test_compacted import send as send_keys
from tests.bronze.pulsar.test_encryption import SENT, Key, rsa_key  # noqa: F401
from tests.bronze.pulsar.test_transactions import send
from tests.bronze.test_landing import EVENTS, Home
from tests.java_client import JavaClient, message


@pytest.fixture
def lake(spark: SparkSession, topics: Topics, tmp_path: Path) -> Home:
    return Home(spark, topics, tmp_path)


def test_an_open_transaction_delays_what_is_behind_it_and_nothing_else(
    lake: Home, topics: Topics, java: JavaClient
) -> None:
    first, second = lake.partitions
    send(java, first, b"committed")
    send(java, first, b"aborted", to="abort")
    transaction = java.begin()
    java.send(first, [message(b"open")], transaction=transaction)
    topics.send(first, b"behind")
    topics.send(second, b"other partition")
    assert lake.payloads() == [b"committed", b"other partition"]
    status = topic_status(EVENTS, topics.endpoint, lake.settings)
    assert (status.transaction.id if status.transaction else None, status.backlog) == (transaction, 2)
    java.commit(transaction)
    assert lake.payloads() == [b"committed", b"open", b"behind", b"other partition"]
    assert topic_status(EVENTS, topics.endpoint, lake.settings).transaction is None
    assert topic_status(EVENTS, topics.endpoint, lake.settings).backlog == 0


def test_a_small_backlog_ends_before_an_open_transaction(
    lake: Home, topics: Topics, java: JavaClient, spark: SparkSession
) -> None:
    topics.send(lake.partitions[0], b"0")
    transaction = java.begin()
    java.send(lake.partitions[0], [message(b"open")], transaction=transaction)

    def land() -> int | None:
        return land_small_backlog(Lake(spark, lake.settings), Reach(lake.settings, EVENTS, topics.endpoint), Permit())

    assert (land(), land()) == (1, 0)
    java.commit(transaction)
    assert (land(), land()) == (1, 0)


def test_encrypted_messages_land_and_are_decrypted_later(
    lake: Home,
    topics: Topics,
    java: JavaClient,
    rsa_key: Key,  # noqa: F811
) -> None:
    java.send(lake.partitions[0], SENT, public_keys={"K": str(rsa_key.public)}, batched=True)
    java.send(lake.partitions[1], SENT, public_keys={"K": str(rsa_key.public)})
    topics.send(lake.partitions[1], b"plain")
    assert len(lake.land()) == 7
    assert lake.table().where(F.col("properties")[ENCRYPTION].isNotNull()).count() == 6
    opened = decrypted(lake.table(), files={"K": rsa_key.private})
    rows = opened.select("partition", "batch_index", "key", "payload", "event_time").collect()
    found = {(row.partition, row.batch_index, row.key, row.payload) for row in rows if row.payload != b"plain"}
    assert {each for each in found if each[0] == 0} == {(0, 0, "é", b"one"), (0, 1, "two", None), (0, 2, None, b"")}
    assert {each[2:] for each in found if each[0] == 1} == {("é", b"one"), ("two", None), (None, b"")}
    assert opened.schema == lake.table().schema


def test_the_first_landing_of_a_compacted_topic(
    lake: Home, topics: Topics, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    [partition, _] = lake.partitions
    topics.admin("DELETE", partition, f"/subscription/{EVENTS.subscription}")
    send_keys(topics, partition, ("a", b"a1"), ("b", b"b1"), ("a", b"a2"))
    compact(topics, partition)
    send_keys(topics, partition, ("b", b"b2"))
    topics.delete_read_ledgers(partition)
    assert {b"a2", b"b2"} <= set(lake.payloads()) <= {b"a2", b"b1", b"b2"}
    assert f"events: {partition} is compacted: of messages that the broker has deleted" in capsys.readouterr().err
    landed = Reconciliation(topic="events", landed=len(lake.payloads()), accounted={})
    kept = landed.landed - 1
    own = Lake(spark, lake.settings)
    assert with_compacted(own, EVENTS, landed).arrived == f"{kept + 1} ({kept} kept by compaction)"
    lake.lose_checkpoint()
    send_keys(topics, partition, ("b", b"b3"))
    assert len(lake.payloads()) == kept + 2
    assert with_compacted(own, EVENTS, landed).compacted == kept


def test_a_partition_that_was_deleted_hinders_nothing(
    lake: Home, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.admin("DELETE", lake.partitions[1], "?force=true")
    topics.send(lake.partitions[0], b"0")
    claim_subscription(EVENTS, topics.endpoint, lake.settings)
    assert lake.refusal() is None
    assert lake.payloads() == [b"0"]
    assert f"events: {lake.partitions[1]} is not there" in capsys.readouterr().err
    topics.send(lake.partitions[1], b"1")
    claim_subscription(EVENTS, topics.endpoint, lake.settings)
    assert lake.payloads() == [b"0", b"1"]
