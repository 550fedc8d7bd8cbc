"""Erasing a person: nothing of it is left in any file, and all else is as if it had never been there."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.expectations.results import RESULTS, Result, keep
from pulsar_lakehouse.expectations.suites import Severity
from pulsar_lakehouse.gold.enrichment.declaration import ACTIONS, BACKFILLS
from pulsar_lakehouse.gold.sql.declaration import read_declaration
from pulsar_lakehouse.jobs import forget as module
from pulsar_lakehouse.jobs.delivery import publishing, refreshing
from pulsar_lakehouse.jobs.forget import find, forget
from pulsar_lakehouse.jobs.maintenance import maintain
from pulsar_lakehouse.jobs.snapshots import create, refuse_lost, restore, snapshots
from pulsar_lakehouse.jobs.steps import enriching, landing, merging, reconcile_all
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import Message as Sent
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.declared import KEEP
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import expected, land_literally, messages, own_home, own_topics, read, tables
from tests.messages import at, item, message, millis, order, user
from tests.oracle import Message, Oracle
from tests.postgres import held_in_postgres, in_postgres
from tests.published import GOLD_TOPIC, gold, seen, sent
from tests.shop import ENRICHMENTS, ENTITIES, SHOP, TOPICS, WRITTEN

ZAPHOD, MERGED = 7007007, 8008008
"""A user, and one that was merged into it."""
WORDS = ("Zaphod", "zaphod@heart.gold", str(ZAPHOD), str(MERGED))
NOBODY = message("users", b"{", key=None, place=9)
HIS = [
    user(ZAPHOD, "Zaphod", when=1, place=3, emailAddress="zaphod@heart.gold"),
    user(ZAPHOD, "Zaphod II", when=2, place=4, emailAddress="zaphod@heart.gold"),
    user(MERGED, "Zaphod?", place=5, mergedAt=0, parentUserId=ZAPHOD),
    message("users", b'{"firstName": "Zaphod"', key=str(ZAPHOD), place=6),
    message("users", {"id": ZAPHOD, "firstName": "Zaphod", "createdAt": "then"}, key=None, place=7),
    order(1, place=1, user=ZAPHOD),
    order(2, place=2, user=MERGED),
    order(2, place=3, user=ZAPHOD),
    order(3, place=4, user=ZAPHOD, item=9),
    order(4, place=5, user=ZAPHOD, price=-1.0),
    order(5, place=6, user=ZAPHOD, item=8),
]
OTHERS = [
    user(1, place=1),
    user(2, "Eve", place=2),
    item(1),
    NOBODY,
    order(1, place=11, price=2.5),  # a duplicate, until the order that it repeats is erased
    order(1, place=12, user=2),
    order(6, place=13, user=2),
    order(7, place=14, user=9),
]
WITHOUT_SQL = replace(SHOP, sql_tables=())


@pytest.fixture
def project(lake: Lake, tmp_path: Path) -> Settings:
    """A home where the person is in every table, in older versions of tables, and in what people asked and saw."""
    project = own_home(lake.settings, tmp_path)
    land_literally(Lake(lake.spark, project), [*HIS, *OTHERS])
    follow(Lake(lake.spark, project))
    given_up = ("discard", "orders", (0, 7, 6, 0), None, "ada", "Zaphod does not want it", None)
    Lake(lake.spark, project).table(ACTIONS.name).append(lake.spark.createDataFrame([given_up], ACTIONS.ddl))
    catch_up(project, enriching(Lake(lake.spark, project), ENRICHMENTS))
    Lake(lake.spark, project).table(ORDERS.shadow).append(Lake(lake.spark, project).table(ORDERS.gold_table).read())
    asked = {"request": "1", "event": "failed", "topic": "orders", "entity": "users", "key": str(ZAPHOD)}
    backfills = Lake(lake.spark, project).table(BACKFILLS.name)
    backfills.append(lake.spark.createDataFrame([asked], backfills.schema))
    failed = Result(
        table_name="silver.users",
        version=1,
        table_rows=4,
        scope="whole",
        rule="email_is_an_address",
        severity=Severity.WARNING,
        outcome="failed",
        rows=4,
        failing=1,
        observed='1 of 4 rows, such as {"id":7007007}',
    )
    keep(Lake(lake.spark, project), [failed], run="1", at=datetime.now(UTC))
    return project


def follow(lake: Lake) -> None:
    catch_up(lake.settings, merging(lake, ENTITIES))
    catch_up(lake.settings, enriching(lake, ENRICHMENTS))


def check(lake: Lake, kept: list[Message]) -> None:
    assert tables(lake.settings) == expected(Oracle().run(kept))
    assert [each for each in reconcile_all(lake) if not each.holds] == []


def holding(folder: Path) -> Iterator[str]:
    """The files in which one of the words is, also within compressed columns."""
    for file in (each for each in sorted(folder.rglob("*")) if each.is_file()):
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += repr(pq.read_table(file, partitioning=None).to_pylist()).encode()
        if any(word.encode() in content for word in WORDS):
            yield str(file.relative_to(folder))


def once(crashed: set[str], name: str, step: Callable[..., object]) -> Callable[..., object]:
    """The step, which ends in a crash the first time that it is done, at each table if it deletes from it."""

    def stepped(*given: object, **named: object) -> object:
        done = step(*given, **named)
        place = str(given[1]) if name == "_delete" else name
        if place in crashed or place not in CRASHES:
            return done
        crashed.add(place)
        raise RuntimeError("power cut")

    return stepped


DELETES = ("bronze.orders", "silver.users", "gold.enriched_orders", "quarantine.duplicate_orders")
STEPS = ("record", "decide_again", "seal", "purge_versions")
CRASHES = {*DELETES, *STEPS}


@pytest.mark.long
def test_a_crash_after_each_step_is_made_good_by_the_next_run(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(Lake(spark, project), WITHOUT_SQL, USERS, str(MERGED)).tables == {
        "bronze.users": 5,
        "bronze.orders": 6,
        "quarantine.malformed": 3,
        "silver.users": 2,
        "silver.users_history": 3,
        "gold.enriched_orders": 2,
        "quarantine.waiting_orders": 1,
        "quarantine.duplicate_orders": 1,
        "quarantine.discarded_orders": 1,
        "quarantine.actions": 1,
    }
    before = create(Lake(spark, project), WITHOUT_SQL, "before")
    crashed: set[str] = set()
    certificates: list[Path] = []
    for _ in range(len(CRASHES) + 1):
        with monkeypatch.context() as patch, suppress(RuntimeError):
            for step in ("_delete", *STEPS):
                patch.setattr(module, step, once(crashed, step, getattr(module, step)))
            certificates = forget(Lake(spark, project), WITHOUT_SQL, USERS, str(ZAPHOD), now=True)
    assert (crashed, len(certificates), snapshots(project)) == (CRASHES, 1, [])
    with pytest.raises(ConfigurationError, match="before: it has data that was erased since"):
        refuse_lost(project, WITHOUT_SQL, before)
    check(Lake(spark, project), OTHERS)
    assert list(holding(project.home)) == []
    [path] = certificates
    told = json.loads(path.read_text())
    assert (told["messages"], told["rows"]["silver.users"], told["unreadable_messages"]) == (11, 2, 1)
    assert read(project, RESULTS.name)[0]["observed"] == "1 of 4 rows"
    assert [
        Lake(spark, project).table(each).delta_property("delta.appendOnly") for each in ("bronze.users", RESULTS.name)
    ] == [
        "true",
        "true",
    ]


def maintain_when_due(project: Settings, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintain the tables as if it were the moment at which older versions leave, by the certificate."""
    leave_at = datetime.fromisoformat(json.loads(certificate.read_text())["older_versions"]["leave_at"])
    monkeypatch.setattr("pulsar_lakehouse.jobs.maintenance.KEEP", KEEP - (leave_at - datetime.now(UTC)))
    list(maintain(project))


LATER = [user(10, "Trillian", place=20), order(8, user=10, place=20)]


@pytest.mark.long
def test_the_first_maintenance_after_a_week_removes_what_older_versions_have(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a snapshot was made meanwhile, which can still be restored. Each commit meanwhile makes a checkpoint."""
    [path] = forget(Lake(spark, project), WITHOUT_SQL, USERS, str(ZAPHOD), now=False)
    after = create(Lake(spark, project), WITHOUT_SQL, "after")
    for name in after.tables:
        Lake(spark, project).table(name).set_properties({"delta.checkpointInterval": "1"})
    land_literally(Lake(spark, project), LATER)
    follow(Lake(spark, project))
    list(maintain(project))
    assert {name.split("/")[1] for name in holding(project.home)} == {
        "bronze",
        "silver",
        "gold",
        "quarantine",
        "quality",
    }
    maintain_when_due(project, path, monkeypatch)
    assert list(holding(project.home)) == []
    check(Lake(spark, project), [*OTHERS, *LATER])
    list(restore(Lake(spark, project), WITHOUT_SQL, after))
    follow(Lake(spark, project))
    check(Lake(spark, project), [*OTHERS, *LATER])


BY_NAME = """-- keys: name
-- refresh: incremental
SELECT user.first_name AS name, count(*) AS orders FROM gold.enriched_orders GROUP BY user.first_name
"""


def send(project: Settings, endpoint: Endpoint, sent_now: list[Message]) -> None:
    for topic in TOPICS:
        of_topic = [each for each in sent_now if each.topic == topic.name]
        produce([(topic, (Sent(str(each.key), each.payload, millis(at(0))) for each in of_topic))], endpoint, project)


def test_a_person_leaves_sql_topics_and_postgres_and_does_not_land_again(
    lake: Lake, endpoint: Endpoint, postgres: str, tmp_path: Path
) -> None:
    project = own_topics(in_postgres(lake.settings, postgres), endpoint, tmp_path / tmp_path.name)
    create_published([GOLD_TOPIC], endpoint, project)
    (tmp_path / "orders_by_name.sql").write_text(BY_NAME)
    by_name = replace(read_declaration(tmp_path / "orders_by_name.sql"), postgres="orders_by_name")
    pipeline = replace(SHOP, sql_tables=(by_name,))

    def run() -> None:
        catch_up(project, landing(Lake(lake.spark, project), TOPICS))
        follow(Lake(lake.spark, project))
        list(refreshing(Lake(lake.spark, project), [by_name]))
        catch_up(project, publishing(Lake(lake.spark, project), ENRICHMENTS))

    # The person's messages are the last ones, so only the record of the erasure says that they had landed.
    send(project, endpoint, [user(1), item(1), order(1, place=0), order(2, place=0)])
    send(project, endpoint, [HIS[0], HIS[1], *(order(line, place=0, user=ZAPHOD) for line in range(3, 9))])
    run()
    assert {name.split("/")[1] for name in holding(project.home)} == {"bronze", "gold", "silver"}
    assert held_in_postgres(postgres, "orders_by_name") == read(project, by_name.name)
    forget(Lake(lake.spark, project), pipeline, USERS, str(ZAPHOD), now=True)
    assert list(holding(project.home)) == []
    assert held_in_postgres(postgres, "orders_by_name") == [{"name": "Ada", "orders": 2}]
    assert seen(sent(project, endpoint)) == gold(project)
    assert gold(project).keys() == {"1-1", "1-2"}
    assert read(project, by_name.name) == [{"name": "Ada", "orders": 2}]
    for name in WRITTEN:
        lake.files.delete(project.checkpoint_path(name))
    run()
    assert len(messages(project)) == 4
    assert list(holding(project.home)) == []
    send(project, endpoint, [user(ZAPHOD, "Zaphod III", when=3), order(9, place=0, user=ZAPHOD)])
    run()
    check(Lake(lake.spark, project), messages(project))
    names = sorted(read(project, by_name.name), key=lambda row: row["name"])
    assert names == [{"name": "Ada", "orders": 2}, {"name": "Zaphod III", "orders": 1}]
    assert seen(sent(project, endpoint)) == gold(project)


def test_other_keys_of_an_erased_message_have_the_state_that_older_messages_tell(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    fields = "stores ARRAY<STRUCT<id: BIGINT, city: STRING>>"
    stores = Entity(
        topic=Topic("stores", fields, rows="stores"), key="id", columns={"id": "row.id", "city": "row.city"}
    )
    sent = [{1: "Bonn", 2: "Kiel"}, {1: "Ulm", 3: "Jena"}]
    payloads = [{"stores": [{"id": id, "city": city} for id, city in each.items()]} for each in sent]
    landed = [message("stores", each, key=None, when=place, place=place) for place, each in enumerate(payloads)]
    land_literally(own, landed, [stores.topic])
    pipeline = Pipeline(entities=(stores,), enrichments=(), sql_tables=())
    catch_up(own.settings, merging(own, [stores]))
    forget(own, pipeline, stores, "3", now=False)
    assert sorted((row["id"], row["city"]) for row in read(own.settings, stores.table.name)) == [
        (1, "Bonn"),
        (2, "Kiel"),
    ]
    [version] = [row for row in read(own.settings, stores.history.name) if row["id"] == 1]
    assert (version["city"], version["valid_until"]) == ("Bonn", None)
    assert reconcile_entity(own, stores).holds


def test_what_can_not_be_read_may_be_of_any_kind_that_fields_tell(lake: Lake, tmp_path: Path) -> None:
    """It counts as a product, and has the key of a customer, or none."""
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    conditions = tuple((name, f"kind = '{name}'") for name in ("products", "customers"))
    entities = tuple(
        Entity(
            topic=Topic(name, "id BIGINT NOT NULL, kind STRING", topic="shop", where=where, kinds=conditions),
            key="id",
            columns="id",
        )
        for name, where in conditions
    )
    landed = [message("shop", b"{", key=key, place=place) for place, key in enumerate(("5", None))]
    land_literally(own, landed, [entities[0].topic.landing])
    catch_up(own.settings, merging(own, entities))
    found = find(own, Pipeline(entities=entities, enrichments=(), sql_tables=()), entities[1], "5")
    assert (found.tables, found.unreadable) == ({"bronze.shop": 1, "quarantine.malformed": 1}, 1)
