"""The project of the page about several topics, with a real broker: from their messages to one fact each."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.jobs.new_data import Kind, Reason, new_messages
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from tests.cli.outcome import Command
from tests.lake import environment, own_topics, read
from tests.test_docs import ROOT, blocks

WITH_TIP = {"id": "long", "tip": "long", "cents": "long", "orderedAt": "long"}
"""The fields of a schema that `orders-us` has, in another order."""


def order(id: int, **more: int) -> dict[str, dict[str, int]]:
    return {"payload": {"id": id, "cents": 250, "orderedAt": 1_767_225_600_000, **more}}


def avro(id: int) -> dict[str, object]:
    fields = [{"name": name, "type": kind} for name, kind in WITH_TIP.items()]
    return {**order(id, tip=9), "schema": {"type": "AVRO", "schema": {"type": "record", "name": "O", "fields": fields}}}


@pytest.mark.spark
def test_orders_of_several_topics_are_facts_of_one_table(
    lakehouse: Command, spark: SparkSession, settings: Settings, endpoint: Endpoint, tmp_path: Path
) -> None:
    """Order 1 is in two topics. Each topic has another schema, and `orders-asia` is made after the first run."""
    project, _ = blocks(ROOT / "docs" / "several-topics.md", "python")
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "orders.py").write_text(project)
    eu = Topic("orders", "id BIGINT NOT NULL, cents BIGINT, orderedAt TIMESTAMP_MILLIS NOT NULL", topic="orders-eu")
    own = own_topics(settings, endpoint, tmp_path, [eu])
    given = environment(own, LAKEHOUSE_DECLARATIONS=str(tmp_path / "declarations"))

    def send(topic: str, *messages: object) -> None:
        (tmp_path / "some.jsonl").write_text("\n".join(map(json.dumps, messages)))
        sent = lakehouse("send", topic, str(tmp_path / "some.jsonl"), **given)
        assert (sent.code, sent.out) == (0, f"Acknowledged: {len(messages)} {topic}\n"), sent.err

    assert lakehouse("send", "orders", "some.jsonl", **given).line == (
        "lakehouse: orders: is several topics in Pulsar: name one of orders-.*"
    )
    send("orders-eu", order(1), order(2))
    send("orders-us", avro(1), avro(3))
    assert lakehouse("run", **given).code == 0
    send("orders-asia", order(4), {"payload": {"id": "x"}})
    several = replace(eu, topic=re.compile("orders-.*"))
    assert new_messages(own, several) == Reason(Kind.NEW_MESSAGES, "orders: 2 entries have not landed", 2)
    done = lakehouse("run", **given)
    assert "4 enriched + 0 waiting + 1 duplicates + 0 discarded + 1 malformed" in done.out
    assert sorted((row["id"], row["region"]) for row in read(own, "gold.enriched_orders")) == [
        *((1, "eu"), (2, "eu")),
        *((3, "us"), (4, "asia")),
    ]
    traced = lakehouse("trace", "1", "--json", **given).out
    assert sorted(re.findall("landed from (orders-[a-z]+), published", traced)) == ["orders-eu", "orders-us"]
    [status] = json.loads(lakehouse("status", "--json", **given).out)["topics"]
    assert (status["messages"], status["backlog"], status["problem"]) == (6, 0, "")
    assert {each["topic"]: each["messages"] for each in status["topics"]} == {
        "orders-asia": 2,
        "orders-eu": 2,
        "orders-us": 2,
    }
