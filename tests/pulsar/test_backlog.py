"""How long messages have waited, by what the broker answers."""

from typing import Any

import pytest
import requests

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.pulsar import backlog as module
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings

NOW = 1_800_000_000.0
BROKER = Endpoint(service_url="pulsar://broker:6650", admin_url="http://broker:8080")


def part(backlog: int, oldest: float) -> dict[str, Any]:
    """What the broker says of a partition; `oldest` is in seconds, and -1 if it is not known."""
    cursor = {"msgBacklog": backlog, "earliestMsgPublishTimeInBacklog": int(oldest * 1000) if oldest > 0 else -1}
    size = {"backlogSize": backlog * 100, "storageSize": 9_000}
    return {"msgInCounter": 9, "subscriptions": {ITEMS.topic.subscription: cursor}, **size}


NEVER_LANDED: dict[str, Any] = {"msgInCounter": 9, "subscriptions": {}, "backlogSize": 0, "storageSize": 900}
EMPTY: dict[str, Any] = {"msgInCounter": 0, "subscriptions": {}, "backlogSize": 0, "storageSize": 0}


@pytest.mark.parametrize(
    ("parts", "backlog", "minutes"),
    [
        pytest.param([part(0, -1), part(3, NOW - 600)], 3, 10, id="one partition waits"),
        pytest.param([part(2, NOW - 300), part(3, NOW - 600)], 5, 10, id="both wait"),
        pytest.param([part(0, -1), part(0, -1)], 0, 0, id="all has landed"),
        pytest.param([part(0, -1), part(3, -1)], 3, None, id="the broker does not know since when"),
        pytest.param([NEVER_LANDED, NEVER_LANDED], 18, None, id="nothing has ever landed"),
        pytest.param([EMPTY, EMPTY], 0, 0, id="nothing was sent"),
        pytest.param([part(3, NOW - 600)], 3, 10, id="a topic without partitions"),
    ],
)
def test_lag_is_the_age_of_the_oldest_message_in_any_partition(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, parts: list[dict[str, Any]], backlog: int, minutes: int | None
) -> None:
    parted = len(parts) > 1

    def call_admin(method: str, path: str, *_: object, **__: object) -> requests.Response:
        whole = {"msgInCounter": 18, "partitions": {f"items-{number}": each for number, each in enumerate(parts)}}
        answer = whole if parted else parts[0]
        response = requests.Response()
        response.status_code = 200
        response.json = lambda **_: {"partitions": len(parts) if parted else 0} if "/partitions" in path else answer  # type: ignore[method-assign]
        return response

    monkeypatch.setattr(module, "call_admin", call_admin)
    monkeypatch.setattr("pulsar_lakehouse.pulsar.backlog.time.time", lambda: NOW)
    found = topic_status(ITEMS.topic, BROKER, settings)
    waited = None if found.lag_seconds is None else found.lag_seconds / 60
    assert (found.backlog, found.backlog_bytes, waited) == (backlog, backlog * 100, minutes)
