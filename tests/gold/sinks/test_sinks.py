"""From keyed topics through SQL to a topic and to Postgres, on a real broker and a real Postgres."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.domains.favorites.declarations.changelogs import (
    ACCOUNT_USERS,
    CHANGELOGS,
    FAVORITE_CHEESES,
    FAVORITE_COLORS,
)
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.sinks import postgres as sink
from pulsar_lakehouse.gold.sql.declaration import declared_in
from pulsar_lakehouse.inspection.comparison import Replica, compare
from pulsar_lakehouse.jobs.delivery import refreshing
from pulsar_lakehouse.jobs.lineage.kept import last_run
from pulsar_lakehouse.jobs.steps import landing, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pulsar.endpoint import Endpoint, connect
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.tables.lake import Lake
from tests.crashes import fail_after
from tests.lake import own_topics, read
from tests.messages import at, millis
from tests.postgres import held_in_postgres, in_postgres
from tests.published import sent

SQL = Path(__file__).parents[3] / "pulsar_lakehouse" / "domains" / "favorites" / "declarations" / "sql"
COUNTS, FAVORITES = (replace(table, postgres=table.file.stem) for table in declared_in(SQL))


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, postgres: str, tmp_path: Path) -> Settings:
    topics: list[Topic] = [entity.topic for entity in CHANGELOGS]
    own = own_topics(settings, endpoint, tmp_path, topics)
    create_published([COUNTS.name.removeprefix("gold."), FAVORITES.name.removeprefix("gold.")], endpoint, own)
    return in_postgres(own, postgres)


def send(project: Settings, endpoint: Endpoint, entity: Entity, user: int, minute: int, **fields: Any) -> None:
    """Send a message whose key is the user. Without fields, it is a tombstone."""
    client = connect(endpoint, project)
    producer = client.create_producer(f"persistent://{project.pulsar.namespace}/{entity.topic.name}")
    payload = json.dumps({"userId": user, **fields}).encode() if fields else None
    when = millis(at(minute))
    producer.send(payload, partition_key=str(user), properties={"source": "form"}, event_timestamp=when)
    client.close()


def land_and_merge(lake: Lake) -> None:
    catch_up(lake.settings, landing(lake, [entity.topic for entity in CHANGELOGS]))
    catch_up(lake.settings, merging(lake, CHANGELOGS))


def refresh(lake: Lake) -> list[str]:
    """Refresh and publish the tables; returns how each was refreshed."""
    return [done.kind for done in refreshing(lake, [COUNTS, FAVORITES])]


def told(project: Settings, step: str) -> tuple[str, int | None, dict[str, int]]:
    """How the last run of a step ended, with the rows that it read, and wrote by table."""
    run = last_run(project, step)
    assert run is not None
    return run.state, run.read, dict(run.written)


def consumed(project: Settings, endpoint: Endpoint, topic: str) -> list[tuple[str, Any]]:
    return [(message.key, message.value) for message in sent(project, endpoint, topic)]


def by_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: next(iter(row.values())))


def test_changes_reach_the_topic_and_postgres_once(
    spark: SparkSession, endpoint: Endpoint, project: Settings, postgres: str
) -> None:
    for user, account in ((1, 7), (2, 7), (3, 8)):
        send(project, endpoint, ACCOUNT_USERS, user, minute=user, accountId=account, name=f"user {user}")
    send(project, endpoint, FAVORITE_COLORS, 1, minute=5, color="red")
    land_and_merge(Lake(spark, project))
    assert refresh(Lake(spark, project)) == ["full", "full"]
    assert told(project, "land account_users") == ("COMPLETE", 3, {"bronze.account_users": 3})
    assert told(project, "merge account_users") == ("COMPLETE", 3, {"silver.account_users": 3})
    assert told(project, "refresh gold.user_count_by_account") == ("COMPLETE", None, {COUNTS.name: 2})
    assert told(project, "publish user_count_by_account") == ("COMPLETE", 0, {})  # the first rows are no changes
    assert told(project, "publish postgres user_count_by_account") == ("COMPLETE", 2, {})
    assert sorted(consumed(project, endpoint, "user_count_by_account")) == [
        ("7", {"account_id": 7, "users": 2, "last_change": millis(at(2))}),
        ("8", {"account_id": 8, "users": 1, "last_change": millis(at(3))}),
    ]
    assert held_in_postgres(postgres, COUNTS.postgres or "") == by_first(read(project, COUNTS.name))
    [one, *_] = held_in_postgres(postgres, FAVORITES.postgres or "")
    assert (one["color"], one["color_since"], one["color_source"]) == ("red", at(5), "form")
    assert one["color_topic"].endswith("/favorite_colors")
    assert one["color_position"].keys() == {"partition", "ledger_id", "entry_id", "batch_index"}

    send(project, endpoint, ACCOUNT_USERS, 3, minute=10, accountId=7, name="user 3")  # moves
    send(project, endpoint, ACCOUNT_USERS, 2, minute=11)  # is deleted
    send(project, endpoint, FAVORITE_COLORS, 1, minute=12, color="blue")
    send(project, endpoint, FAVORITE_COLORS, 1, minute=4, color="green")  # too late
    send(project, endpoint, FAVORITE_CHEESES, 3, minute=13, cheese="brie")
    land_and_merge(Lake(spark, project))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "_apply", fail_after(sink._apply))  # before Postgres commits
        with pytest.raises(RuntimeError):
            refresh(Lake(spark, project))
    assert told(project, "publish postgres user_count_by_account") == ("FAIL", None, {})
    assert [row["account_id"] for row in held_in_postgres(postgres, COUNTS.postgres or "")] == [7, 8]
    shutil.rmtree(project.checkpoint_root)
    assert refresh(Lake(spark, project)) == ["incremental", "incremental"]
    changes = consumed(project, endpoint, "user_count_by_account")
    assert len(changes) == 4
    assert dict(changes) == {"7": {"account_id": 7, "users": 2, "last_change": millis(at(10))}, "8": None}
    assert held_in_postgres(postgres, COUNTS.postgres or "") == by_first(read(project, COUNTS.name))
    for table in (COUNTS, FAVORITES):
        assert not compare(
            project, Replica(table=table.name, keys=table.keys, original=str(table.postgres))
        ).differences
    rows = held_in_postgres(postgres, FAVORITES.postgres or "")
    assert [(row["user_id"], row["color"], row["cheese"]) for row in rows] == [(1, "blue", None), (3, None, "brie")]
    assert dict(consumed(project, endpoint, "user_favorite_color_and_cheese"))["2"] is None

    Lake(spark, project).table(COUNTS.name).delta.update("account_id = 7", {"users": "9"})
    assert sink.publish_to_postgres(Lake(spark, project), COUNTS) == 1
    assert sink.publish_to_postgres(Lake(spark, project), COUNTS) == 0
    assert [row["users"] for row in held_in_postgres(postgres, COUNTS.postgres or "")] == [9]
    shutil.rmtree(project.table_path(COUNTS.name))
    [anew] = refreshing(Lake(spark, project), [replace(COUNTS, topic=None)])
    assert anew.kind == "full"
    assert [row["users"] for row in held_in_postgres(postgres, COUNTS.postgres or "")] == [2]
    with psycopg.connect(postgres) as connection:
        connection.execute("DELETE FROM lakehouse_published")
    with pytest.raises(LakehouseError, match="exists already, but lakehouse did not create it"):
        sink.publish_to_postgres(Lake(spark, project), COUNTS)


def test_an_error_does_not_quote_the_password(lake: Lake) -> None:
    with pytest.raises(ConfigurationError) as error:
        sink.publish_to_postgres(
            Lake(lake.spark, in_postgres(lake.settings, "postgres//me:secret@host/database")), COUNTS
        )
    assert str(error.value) == "LAKEHOUSE_POSTGRES__URL: must be postgresql://user:password@host/database"


def test_lists_come_without_nul(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(["a\0\0b", "\\u0000", "\\\0"],)], "texts ARRAY<STRING>")
    [(text,)] = rows.select(sink._to_text(rows, "texts")).collect()
    assert json.loads(text) == ["ab", "\\u0000", "\\"]
