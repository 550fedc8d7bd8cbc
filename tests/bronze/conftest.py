import re
from collections.abc import Iterator

import pytest

from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from tests.bronze.broker_topics import Topics


@pytest.fixture
def topics(settings: Settings, endpoint: Endpoint, request: pytest.FixtureRequest) -> Iterator[Topics]:
    """An empty namespace, named after the test."""
    topics = Topics(f"public/{re.sub(r'[^a-z0-9]+', '-', request.node.name.lower())}", endpoint, settings)
    yield topics
    topics.close()
