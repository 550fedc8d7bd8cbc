"""Declarations that change: the tables follow at the next start, and keep what they already hold."""

from dataclasses import replace
from pathlib import Path

from pyspark.sql.types import StringType, StructField, StructType

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.jobs.planning import approve_all
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.settings import SHIPPED
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home, read
from tests.messages import item, order, user
from tests.oracle import Message
from tests.shop import SHOP

WITH_CITY = replace(
    USERS,
    topic=replace(USERS.topic, fields=StructType([*USERS.topic.fields, StructField("city", StringType())])),
    columns={name: sql for name, sql in USERS.columns.items() if name != "last_name"} | {"city": "upper(city)"},
)
WITH_CHANNEL = replace(
    ORDERS,
    topic=replace(ORDERS.topic, fields=StructType([*ORDERS.topic.fields, StructField("channel", StringType())])),
    columns={name: sql for name, sql in ORDERS.columns.items() if name != "item_name"} | {"channel": "channel"},
)


def run(lake: Lake, messages: list[Message], users: Entity, enrichment: Enrichment) -> None:
    land_literally(lake, messages)
    catch_up(lake.settings, merging(lake, [users, ITEMS]))
    catch_up(lake.settings, enriching(lake, [enrichment]))


def test_columns_come_and_go(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    first = [
        user(1, lastName="Byron"),
        item(1),
        order(1, place=1),
        order(2, place=2, user=2),
        order(3, place=3, user=3),
    ]
    run(Lake(lake.spark, project), first, USERS, ORDERS)
    changes = [
        user(1, when=1, place=5, lastName="Lovelace", city="Rome"),
        user(2, place=6, city="Oslo"),
        order(4, place=7, channel="web"),
        order(5, place=8, channel="web", user=5),
        order(4, place=9, channel="shop"),
    ]
    pipeline = replace(SHOP, entities=(WITH_CITY, ITEMS), enrichments=(WITH_CHANNEL,), sql_tables=())
    approved = list(approve_all(Lake(lake.spark, project), replace(load(SHIPPED), pipeline=pipeline), {}))
    assert [line.partition(":")[0] for line in approved] == [
        *("silver.users", "silver.users_history", "gold.enriched_orders")
    ]
    run(Lake(lake.spark, project), changes, WITH_CITY, WITH_CHANNEL)
    users = {row["id"]: (row["last_name"], row["city"]) for row in read(project, "silver.users")}
    assert users == {1: (None, "ROME"), 2: (None, "OSLO")}
    gold = read(project, ORDERS.gold_table)
    assert {
        row["line_item_id"]: (row["item_name"], row["channel"], row["user"]["last_name"], row["user"]["city"])
        for row in gold
    } == {
        1: ("pie", None, "Byron", None),
        2: (None, None, None, "OSLO"),
        4: (None, "web", None, "ROME"),
    }
    waiting = {row["line_item_id"]: (row["item_name"], row["channel"]) for row in read(project, ORDERS.waiting.name)}
    assert waiting == {3: ("pie", None), 5: (None, "web")}
    assert [(row["item_name"], row["channel"]) for row in read(project, ORDERS.duplicates.name)] == [(None, "shop")]
