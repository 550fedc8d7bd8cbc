"""A consumer of the published topic sees gold by key, and each change of it once."""

import json
import shutil
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as StoredTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.gold.sinks.topic import changelog_of, publication_of, to_messages
from pulsar_lakehouse.jobs.delivery import publishing
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.pulsar.publishing import send
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home
from tests.messages import item, order, user
from tests.published import gold, seen, sent
from tests.shop import ENRICHMENTS, ENTITIES, PUBLISHED

GOLD = ORDERS.gold_table


@pytest.fixture(scope="module")
def enriched(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Twelve orders in gold, in two commits."""
    own = own_home(lake.settings, tmp_path_factory.mktemp("enriched"))
    land_literally(Lake(lake.spark, own), [user(1), user(2, place=1, mergedAt=0, parentUserId=1), item(1)])
    catch_up(own, merging(Lake(lake.spark, own), ENTITIES))
    for lines in (range(8), range(8, 12)):
        land_literally(Lake(lake.spark, own), [order(line, place=line, user=1 + line % 2) for line in lines])
        catch_up(own, enriching(Lake(lake.spark, own), ENRICHMENTS))
    return own


@pytest.fixture
def project(enriched: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    """A copy of those tables, and an empty topic of the test's own."""
    shutil.copytree(enriched.home, tmp_path, dirs_exist_ok=True)
    places = {
        "service_url": endpoint.service_url,
        "admin_url": endpoint.admin_url,
        "namespace": f"public/{tmp_path.name}",
    }
    own = enriched.model_copy(
        update={
            "home": tmp_path,
            "pulsar": enriched.pulsar.model_copy(update=places),
            "run": enriched.run.model_copy(update={"retries": 0}),
        }
    )
    create_published(PUBLISHED, endpoint, own)
    return own


def publish(lake: Lake) -> None:
    catch_up(lake.settings, publishing(lake, ENRICHMENTS))


def test_a_consumer_sees_gold(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    publish(Lake(spark, project))
    messages = sent(project, endpoint)
    assert seen(messages) == gold(project)
    assert len(messages) == 12
    one = seen(messages)["1-1"]
    assert (one["user_id"], one["user"]["id"], one["user_merged"], one["item"]["name"]) == (2, 1, [2], "pie")
    path = f"schemas/{project.pulsar.namespace}/enriched_orders/schema"
    schema = json.loads(call_admin("GET", path, endpoint, project).json()["data"])
    kinds = {field["name"]: field["type"][1] for field in schema["fields"]}
    assert kinds.keys() == set(Lake(spark, project).table(GOLD).read().columns)
    assert kinds["created_at"] == {"type": "long", "logicalType": "timestamp-millis"}
    assert kinds["user"]["name"] == "EnrichedOrderUser"


def test_nothing_is_sent_again(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    publish(Lake(spark, project))
    before = sent(project, endpoint)
    publish(Lake(spark, project))
    shutil.rmtree(project.checkpoint_path("published.enriched_orders"))
    publish(Lake(spark, project))
    assert sent(project, endpoint) == before
    land_literally(Lake(spark, project), [order(20, place=20)])
    catch_up(project, enriching(Lake(spark, project), ENRICHMENTS))
    Path(project.checkpoint_path("published.enriched_orders"), "metadata").write_bytes(b"")
    publish(Lake(spark, project))
    assert len(sent(project, endpoint)) == 13
    assert seen(sent(project, endpoint)) == gold(project)


def test_rows_whose_first_changes_are_gone_and_of_which_a_killed_publisher_sent_a_part(
    spark: SparkSession, endpoint: Endpoint, project: Settings
) -> None:
    table = DeltaTable.forPath(spark, project.table_path(GOLD))
    table.update(set={"price": F.col("price") + 1})
    StoredTable(project.table_path(GOLD)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    publication = publication_of(Lake(spark, project), changelog_of(ORDERS), endpoint)
    marks = {"_change_type": F.lit("insert"), "_commit_version": F.lit(publication.since)}
    rows = table.toDF().withColumns(marks)
    messages = rows.transform(to_messages, keys=ORDERS.keys, order_by=["position"], partitions=2).where("target = 0")
    numbered = [
        ((row.version << 32) + place, row.key, bytes(row.payload)) for place, row in enumerate(messages.collect())
    ]
    send(publication, 0, numbered[:2])
    table.delete("line_item_id = 0")
    publish(Lake(spark, project))
    found = sent(project, endpoint)
    assert seen(found) == gold(project)
    assert len(found) == 13


def test_updates_and_deletes_in_gold(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    publish(Lake(spark, project))
    table = DeltaTable.forPath(spark, project.table_path(GOLD))
    first = spark.createDataFrame(table.toDF().where("line_item_id = 0").collect(), table.toDF().schema)
    (
        table.alias("held")
        .merge(table.toDF().alias("new"), "held.position = new.position AND held.line_item_id < 3")
        .whenMatchedDelete("new.line_item_id = 0")
        .whenMatchedUpdate(set={"price": "new.price + 7.5"})
        .execute()
    )
    publish(Lake(spark, project))
    assert seen(sent(project, endpoint)) == gold(project)
    assert [gold(project)[key]["price"] for key in ("1-1", "1-2", "1-3")] == [9.0, 9.0, 1.5]
    new = sent(project, endpoint, since=3)
    assert len(new) == 3
    assert [message.key for message in new if message.value is None] == ["1-0"]
    Lake(spark, project).table(GOLD).append(first)
    table.delete("line_item_id > 9")
    publish(Lake(spark, project))
    assert seen(sent(project, endpoint)) == gold(project)
    assert len(sent(project, endpoint, since=4)) == 3


def test_a_deleted_key_that_comes_back_in_the_same_commit(spark: SparkSession) -> None:
    types = "_change_type STRING, _commit_version BIGINT, id BIGINT, at TIMESTAMP, sum DECIMAL(9, 2), position INT"
    changes = [
        ("insert", 7, 1, None, None, 1),
        ("delete", 7, 1, None, None, 9),
        ("update_preimage", 6, 1, None, None, 9),
        ("update_postimage", 6, 1, datetime(1970, 1, 1, 0, 0, 1), Decimal("1.50"), 9),
    ]
    frame = spark.createDataFrame(changes, types).transform(
        to_messages, keys=["id"], order_by=["position"], partitions=3
    )
    assert [(row.version, row.key, row.payload and json.loads(row.payload)) for row in frame.collect()] == [
        (6, "1", {"id": 1, "at": 1_000, "sum": "1.50", "position": 9}),
        (7, "1", None),
        (7, "1", {"id": 1, "position": 1}),
    ]
    assert frame.rdd.getNumPartitions() == 3


def test_keys_of_text_can_have_dashes(spark: SparkSession) -> None:
    types = "_change_type STRING, _commit_version BIGINT, shop STRING, branch STRING, number INT"
    rows = [("insert", 1, "a-b", "c", 1), ("insert", 1, "a", "b-c", 2), ("insert", 1, "a\\", "b", 3)]
    frame = spark.createDataFrame(rows, types).transform(
        to_messages, keys=["shop", "branch"], order_by=["number"], partitions=1
    )
    assert [row.key for row in frame.collect()] == [r"a\-b-c", r"a-b\-c", r"a\\-b"]


def test_a_topic_recreated_gets_everything(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    publish(Lake(spark, project))
    path = f"persistent/{project.pulsar.namespace}/enriched_orders/partitions?force=true"
    call_admin("DELETE", path, endpoint, project)
    create_published(PUBLISHED, endpoint, project)
    publish(Lake(spark, project))
    assert len(sent(project, endpoint)) == 12
    assert seen(sent(project, endpoint)) == gold(project)


def test_a_gold_table_recreated_is_refused(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    publish(Lake(spark, project))
    rows = Lake(spark, project).table(GOLD).read()
    rows.write.format("delta").option("delta.enableChangeDataFeed", True).save(project.table_path("gold.anew"))
    shutil.rmtree(project.table_path(GOLD))
    shutil.move(project.table_path("gold.anew"), project.table_path(GOLD))
    with pytest.raises(LakehouseError, match=r"partition-. holds messages of lakehouse-.*: delete the"):
        publish(Lake(spark, project))


def many(lake: Lake, count: int, *, first: int = 100, days: int = 1) -> None:
    """Append `count` orders to gold in one commit."""
    one = lake.table(GOLD).read().limit(1)
    columns = {
        "line_item_id": F.col("id"),
        "position": F.col("position").withField("entry_id", F.col("id")),
        "order_date": F.date_add("order_date", (F.col("id") % days).cast("int")),
    }
    lake.table(GOLD).append(lake.spark.range(first, first + count).crossJoin(one).withColumns(columns).drop("id"))


def test_a_commit_of_many_files_is_one_batch(spark: SparkSession, endpoint: Endpoint, project: Settings) -> None:
    publish(Lake(spark, project))
    many(Lake(spark, project), 1_200, days=1_200)
    publish(Lake(spark, project))
    assert seen(sent(project, endpoint)) == gold(project)
    assert len(sent(project, endpoint)) == 1_212
