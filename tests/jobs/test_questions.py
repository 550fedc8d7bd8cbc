"""The keys that a service is asked for, by what tables hold. No Spark is needed for it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic, service
from pulsar_lakehouse.jobs.questions import question, unanswered
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.settings import Settings, load_settings

NOW = datetime.now(UTC)
TIME = pa.timestamp("us", "UTC")
MISSING = pa.list_(pa.struct({"entity": pa.string(), "key": pa.string()}))
BRONZE = {"key": pa.string(), "event_time": TIME, "ledger_id": pa.int64(), "entry_id": pa.int64()}
POSITION = pa.struct({"ledger_id": pa.int64(), "entry_id": pa.int64()})
GOLD = {
    "order_date": pa.date32(),
    "name": pa.string(),
    "account": pa.struct({"zip": pa.int64(), "since": pa.date32()}),
    "place": pa.struct({"zip": pa.int64()}),
}


@service(returns="city STRING", cache_days=30)
async def places(zip: int, name: str, since: date) -> None:
    pass


PLACES = Entity(source=places, key=("zip", "name", "since"), columns="zip, name, since, city")
ACCOUNTS = Entity(topic=Topic("accounts", "id BIGINT, zip BIGINT, since DATE"), key="id", columns="id, zip, since")
ON = ("account.zip", "name", "account.since")
ORDERS = Enrichment(
    topic=Topic("orders", "id BIGINT, accountId BIGINT, name STRING, at TIMESTAMP"),
    columns="id, accountId AS account_id, name, at",
    keys=("id",),
    event_time="at",
    day="order_date",
    lookups=(
        Lookup(entity=ACCOUNTS, on="account_id", name="account"),
        Lookup(entity=PLACES, on=ON, name="place", required=False),
    ),
)
DECLARED = Pipeline(entities=(ACCOUNTS, PLACES), enrichments=(ORDERS,), sql_tables=())


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load_settings(home=tmp_path)


def write(home: Settings, name: str, columns: Mapping[str, Any], rows: Sequence[Sequence[object]]) -> None:
    table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], pa.schema(columns))
    write_deltalake(home.table_path(name), table, mode="append", schema_mode="merge")


def wait_for(home: Settings, *keys: str, since: datetime = NOW) -> None:
    rows = [([{"entity": "places", "key": key}, {"entity": "accounts", "key": "7"}], since) for key in keys]
    write(home, "quarantine.waiting_orders", {"missing": MISSING, "waiting_since": TIME}, rows)


def answer(home: Settings, number: int, key: str, days_ago: float) -> None:
    write(home, "bronze.places", BRONZE, [(key, NOW - timedelta(days_ago), number, 0)])


def reject(home: Settings, number: int) -> None:
    position = {"ledger_id": number, "entry_id": 0}
    write(home, "quarantine.malformed", {"topic": pa.string(), "position": POSITION}, [("places", position)])


def test_without_tables_nothing_is_asked(home: Settings) -> None:
    assert (unanswered(home, DECLARED, PLACES), question(home, DECLARED, PLACES)) == ([], None)


def test_each_key_that_facts_wait_for_is_asked_once(home: Settings) -> None:
    wait_for(home, "a", "b", "a")
    wait_for(home, "given up", since=NOW - timedelta(31))
    assert sorted(unanswered(home, DECLARED, PLACES)) == ["a", "b"]
    answer(home, 1, "a", 1)
    assert unanswered(home, DECLARED, PLACES) == ["b"]
    assert sorted(unanswered(home, DECLARED, PLACES, again=True)) == ["b", "given up"]
    assert question(home, DECLARED, PLACES) == "places: 1 key has no answer"


def test_an_answer_is_asked_for_again_once_it_is_old(home: Settings) -> None:
    wait_for(home, "old", "renewed")
    for number, (key, days_ago) in enumerate([("old", 40), ("old", 31), ("renewed", 31), ("renewed", 29)]):
        answer(home, number, key, days_ago)
    assert unanswered(home, DECLARED, PLACES) == ["old"]


def test_nonsense_is_asked_for_again_after_a_day_unless_a_good_answer_has_come(home: Settings) -> None:
    wait_for(home, "today", "yesterday", "since")
    for number, (key, days_ago) in enumerate([("today", 0.9), ("yesterday", 1.1), ("since", 1.1), ("since", 0.5)]):
        answer(home, number, key, days_ago)
    for number in (0, 1, 2):
        reject(home, number)
    assert unanswered(home, DECLARED, PLACES) == ["yesterday"]
    assert sorted(unanswered(home, DECLARED, PLACES, again=True)) == ["today", "yesterday"]


def test_facts_in_gold_ask_for_what_they_lack_as_long_as_they_can_be_corrected(home: Settings) -> None:
    zip, since = 10115, date(2026, 1, 31)
    today, old = NOW.date(), NOW.date() - timedelta(400)
    rows = [
        (today, "A, 1", {"zip": zip, "since": since}, None),
        (today, None, {"zip": zip, "since": since}, None),
        (today, "no account", None, None),
        (today, "found", {"zip": zip, "since": since}, {"zip": zip}),
        (old, "old", {"zip": zip, "since": since}, None),
    ]
    gold = {**GOLD, "account": pa.struct({"zip": pa.int64()})}  # written before accounts had the column
    write(home, "gold.enriched_orders", gold, [(today, "A, 1", {"zip": zip}, None)])
    assert unanswered(home, DECLARED, PLACES) == []
    write(home, "gold.enriched_orders", GOLD, rows)
    [key] = unanswered(home, DECLARED, PLACES)
    assert (key, places.arguments_in(key)) == ('[10115,"A, 1","2026-01-31"]', [zip, "A, 1", since])
