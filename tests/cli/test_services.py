"""A project that asks a service by HTTP: what commands do, and what they say of it."""

import json
from pathlib import Path

import pytest

from pulsar_lakehouse import Topic
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from tests.cli.outcome import Command
from tests.cli.sold import send
from tests.http_service import geocoder
from tests.lake import environment, own_topics
from tests.pipeline.projects import project

FIELDS = "id BIGINT NOT NULL, address STRING, at TIMESTAMP_MILLIS NOT NULL"
DECLARED = f"""
import httpx

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic, service

CLIENT = httpx.AsyncClient(base_url="URL")


@service(returns="city STRING, lat DOUBLE", timeout="2 seconds", retries=1, rate=1000, cache_days=30)
async def geocode(address: str) -> dict | None:
    found = await CLIENT.get("/", params={{"address": address}})
    return found.raise_for_status().json()


PLACES = Entity(source=geocode, key="address", columns="address, city, lat")
ORDERS = Enrichment(
    topic=Topic("orders", "{FIELDS}"),
    columns="id, address, at AS ordered_at",
    keys=("id",),
    event_time="ordered_at",
    day="order_date",
    lookups=(Lookup(entity=PLACES, on="address", name="place"),),
)
"""


@pytest.mark.long
def test_a_run_asks_merges_and_enriches_until_no_answer_comes(
    lakehouse: Command, settings: Settings, endpoint: Endpoint, tmp_path: Path
) -> None:
    own = own_topics(settings, endpoint, tmp_path, [Topic("orders", FIELDS)])
    for id, address in enumerate(["Rua A 1", "nowhere at all", "fails", "nonsense", "Rua A 1"]):
        send(own, endpoint, "orders", {"id": id, "address": address, "at": 1767621600000})
    with geocoder() as server:
        folder = project(tmp_path, orders=DECLARED.replace("URL", server.url))
        given = {**environment(own), "LAKEHOUSE_DECLARATIONS": str(folder)}
        planned, done = lakehouse("plan", **given), lakehouse("run", **given)
        assert (planned.code, done.code) == (0, 0)
        assert "3 enriched + 2 waiting + 0 duplicates" in done.out
        failed = "land geocode: service geocode: fails has no answer: HTTPStatusError: Server error '503 Service"
        assert failed in done.err
        gold = "SELECT id, place.city FROM gold.enriched_orders ORDER BY id"
        assert query(own, gold).fetchall() == [(0, "Porto"), (1, "Nowhere At All"), (4, "Porto")]

        status = json.loads(lakehouse("status", "--json", **given).out)
        assert any(line.startswith(f"the last run failed: {failed}") for line in status["problems"])
        [source] = status["sources"]
        assert (source["source"], source["place"], source["rows"]) == ("geocode", "service geocode", 3)
        assert server.counts == {"Rua A 1": 1, "nowhere at all": 1, "nonsense": 1, "fails": 2}

        assert lakehouse("run", **given).code == 0
        assert server.counts == {"Rua A 1": 1, "nowhere at all": 1, "nonsense": 1, "fails": 4}
        assert lakehouse("land", "geocode", **given).code == 0
        assert (server.counts["nonsense"], server.counts["Rua A 1"]) == (2, 1)
        assert lakehouse("forget", "geocode:Rua A 1", "--approve", "--now", **given).code == 0
        assert query(own, "SELECT count(*) FROM bronze.geocode WHERE key = 'Rua A 1'").fetchall() == [(0,)]
