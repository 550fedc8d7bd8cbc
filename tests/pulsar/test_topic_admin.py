import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, admin_path, call_admin
from pulsar_lakehouse.pulsar.topic_admin import create_published, create_topics, expiry_of_subscriptions
from pulsar_lakehouse.settings import Settings
from tests.lake import own_home

FIELDS = "id BIGINT NOT NULL, name STRING"
CHANGELOG = Topic("creatures", FIELDS, record="Creature", changelog=True)
EVENTS = Topic("sightings", FIELDS)


@pytest.fixture(autouse=True)
def _created(endpoint: Endpoint, settings: Settings) -> None:
    create_topics([CHANGELOG, EVENTS], endpoint, settings)


def told(path: str, endpoint: Endpoint, settings: Settings) -> Any:
    return call_admin("GET", path, endpoint, settings).json()


def test_topics_get_partitions_schema_and_subscription(endpoint: Endpoint, settings: Settings) -> None:
    assert told("persistent/public/lakehouse/sightings/partitions", endpoint, settings)["partitions"] == 2
    schema = told("schemas/public/lakehouse/sightings/schema", endpoint, settings)
    assert (schema["type"], json.loads(schema["data"])) == ("JSON", json.loads(EVENTS.pulsar_schema()))
    for partition in (0, 1):
        path = f"persistent/public/lakehouse/sightings-partition-{partition}/subscriptions"
        assert told(path, endpoint, settings) == ["lakehouse-bronze.sightings"]


def test_a_tenant_that_is_missing_is_made_with_its_namespace(endpoint: Endpoint, settings: Settings) -> None:
    pulsar = settings.pulsar.model_copy(update={"namespace": "zoo/north"})
    for _ in range(2):
        create_topics([EVENTS], endpoint, settings.model_copy(update={"pulsar": pulsar}))
    assert told("tenants/zoo", endpoint, settings) == {"adminRoles": [], "allowedClusters": ["standalone"]}
    assert told("persistent/zoo/north/partitioned", endpoint, settings) == ["persistent://zoo/north/sightings"]


def test_only_changelogs_are_kept_for_ever(endpoint: Endpoint, settings: Settings) -> None:
    kept = told("persistent/public/lakehouse/creatures/retention", endpoint, settings)
    assert kept == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    response = call_admin("GET", "persistent/public/lakehouse/sightings/retention", endpoint, settings)
    assert response.text in ("", "null")


def test_messages_that_have_not_landed_do_not_expire(endpoint: Endpoint, settings: Settings) -> None:
    call_admin("POST", "namespaces/public/lakehouse/messageTTL", endpoint, settings, body=60)
    applied = "persistent/public/lakehouse/{}/messageTTL?applied=true"
    create_published(["elsewhere"], endpoint, settings)
    found = [told(applied.format(topic), endpoint, settings) for topic in ("sightings", "elsewhere")]
    call_admin("DELETE", "namespaces/public/lakehouse/messageTTL", endpoint, settings)
    assert found == [0, 60]


def test_a_namespace_whose_subscriptions_expire_is_told(
    endpoint: Endpoint, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    pulsar = settings.pulsar.model_copy(update={"namespace": "public/expiring"})
    own = settings.model_copy(update={"pulsar": pulsar})
    create_topics([EVENTS], endpoint, own)
    assert expiry_of_subscriptions(endpoint, own) is None
    path = f"namespaces/{own.pulsar.namespace}/subscriptionExpirationTime"
    call_admin("POST", path, endpoint, own, body=60)
    create_topics([EVENTS], endpoint, own)
    told = f"{own.pulsar.namespace}: the broker deletes subscriptions that are idle for 60 minutes"
    assert told in capsys.readouterr().err.replace("\n", " ")


def test_creating_again_changes_nothing(endpoint: Endpoint, settings: Settings) -> None:
    more = settings.model_copy(update={"pulsar": settings.pulsar.model_copy(update={"partitions": 3})})
    create_topics([CHANGELOG, EVENTS], endpoint, more)
    assert told("persistent/public/lakehouse/sightings/partitions", endpoint, settings)["partitions"] == 2
    assert told("schemas/public/lakehouse/sightings/schema", endpoint, settings)["version"] == 0


def test_a_missing_subscription_is_left_to_landing_once_there_is_a_table(
    endpoint: Endpoint, settings: Settings, tmp_path: Path
) -> None:
    """A new subscription would hide that the broker has deleted messages that had not landed."""
    project, path = own_home(settings, tmp_path), "persistent/public/lakehouse/sightings"
    found = []
    for folder in ("somewhere", project.table_path("bronze.sightings")):
        Path(tmp_path, folder, "_delta_log").mkdir(parents=True)
        call_admin("DELETE", f"{path}/subscription/{EVENTS.subscription}", endpoint, settings)
        create_topics([EVENTS], endpoint, project)
        found.append(told(f"{path}-partition-0/subscriptions", endpoint, settings))
    create_topics([EVENTS], endpoint, settings)
    assert found == [["lakehouse-bronze.sightings"], []]


def test_a_partition_that_was_deleted_is_made_again(endpoint: Endpoint, settings: Settings) -> None:
    path = "persistent/public/lakehouse/sightings-partition-1"
    call_admin("DELETE", f"{path}?force=true", endpoint, settings)
    create_topics([EVENTS], endpoint, settings)
    assert told(f"{path}/internalStats", endpoint, settings)["lastConfirmedEntry"].endswith(":-1")


def test_a_topic_that_a_producer_has_made_stays_without_partitions(endpoint: Endpoint, settings: Settings) -> None:
    path = "persistent/public/lakehouse/alone"
    call_admin("PUT", path, endpoint, settings)
    create_topics([replace(EVENTS, name="alone")], endpoint, settings)
    assert told(f"{path}/partitions", endpoint, settings)["partitions"] == 0
    assert told(f"{path}/subscriptions", endpoint, settings) == ["lakehouse-bronze.alone"]
    assert told("schemas/public/lakehouse/alone/schema", endpoint, settings)["type"] == "JSON"


@pytest.mark.parametrize("own", ["sightings-v1", "DB.inventory.sightings", "Größe 50%?", "persistent://zoo/south/All"])
def test_a_topic_has_any_name_in_any_namespace(endpoint: Endpoint, settings: Settings, own: str) -> None:
    topic = replace(EVENTS, topic=own)
    create_topics([topic], endpoint, settings)
    name = topic.full_name(settings.pulsar.namespace)
    assert told(f"{admin_path(name)}-partition-0/subscriptions", endpoint, settings) == [EVENTS.subscription]
    assert told(f"{admin_path(name, 'schemas')}/schema", endpoint, settings)["type"] == "JSON"


@pytest.mark.parametrize("type", ["STRING", "BYTES", "AVRO"])
def test_a_schema_of_another_type_stays(endpoint: Endpoint, settings: Settings, type: str) -> None:
    texts = replace(EVENTS, name=f"as_{type.lower()}")
    path = f"schemas/public/lakehouse/{texts.name}/schema"
    registered = {"type": type, "schema": EVENTS.pulsar_schema() if type == "AVRO" else "", "properties": {}}
    call_admin("POST", path, endpoint, settings, body=registered)
    before = told(path, endpoint, settings)
    create_topics([texts, replace(EVENTS, name=f"after_{texts.name}")], endpoint, settings)
    assert told(path, endpoint, settings) == before
    for topic in (texts.name, f"after_{texts.name}"):
        path = f"persistent/public/lakehouse/{topic}-partition-0/subscriptions"
        assert told(path, endpoint, settings) == [f"lakehouse-bronze.{topic}"]


def test_a_schema_that_can_not_be_read_is_told_and_later_topics_are_created(
    endpoint: Endpoint, settings: Settings
) -> None:
    other = replace(EVENTS, name="other", fields="id STRING NOT NULL")
    create_topics([other], endpoint, settings)
    with pytest.raises(BrokerError) as error:
        create_topics([replace(EVENTS, name="other"), replace(EVENTS, name="later")], endpoint, settings)
    assert str(error.value) == "other: id is registered as string, but declared as long"
    assert told("persistent/public/lakehouse/later-partition-0/subscriptions", endpoint, settings) == [
        "lakehouse-bronze.later"
    ]


def test_topics_of_a_namespace_that_can_not_be_listed_are_told_and_others_are_created(
    endpoint: Endpoint, settings: Settings
) -> None:
    nowhere = replace(EVENTS, name="nowhere", topic=re.compile("persistent://public/nowhere/.*"))
    with pytest.raises(BrokerError, match=r"^nowhere: GET .*persistent/public/nowhere: the broker answered 404"):
        create_topics([nowhere, replace(EVENTS, name="beside")], endpoint, settings)
    assert told("persistent/public/lakehouse/beside/partitions", endpoint, settings)["partitions"] == 2


def test_published_topics_are_kept_and_deduplicated(endpoint: Endpoint, settings: Settings) -> None:
    for _ in range(2):
        create_published(["enriched_sightings"], endpoint, settings)
    path = "persistent/public/lakehouse/enriched_sightings"
    assert told(f"{path}/partitions", endpoint, settings)["partitions"] == 2
    assert told(f"{path}/retention", endpoint, settings) == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert told(f"{path}/deduplicationEnabled", endpoint, settings) is True
    assert told(f"{path}-partition-0/subscriptions", endpoint, settings) == []
