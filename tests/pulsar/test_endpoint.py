"""Calls of the admin API of several brokers."""

from pathlib import Path

import pytest

from pulsar_lakehouse.errors import UnreachableError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, call_admin
from pulsar_lakehouse.settings import load_settings
from tests.redirects import redirecting_brokers
from tests.tokens import token


def endpoint(admin_url: str) -> Endpoint:
    return Endpoint(service_url="pulsar://127.0.0.1:1", admin_url=admin_url)


def test_the_first_broker_is_dead_and_the_second_redirects_to_a_third(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path, pulsar={"token": token("owner")})
    with redirecting_brokers({"partitions": 2}, token=token("owner")) as url:
        answer = call_admin("GET", "persistent/public/default/events/partitions", endpoint(url), settings)
    assert answer.json() == {"partitions": 2}


def test_no_broker_answers(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError) as error:
        call_admin("GET", "brokers/ready", endpoint("http://127.0.0.1:1,127.0.0.1:2"), load_settings(home=tmp_path))
    assert str(error.value) == "http://127.0.0.1:1,127.0.0.1:2: no answer from the broker: ConnectionError"


def test_each_host_has_the_path_of_the_url(tmp_path: Path) -> None:
    assert endpoint("https://one:8443,other:8443/pulsar/").cluster(load_settings(home=tmp_path)).admin_urls == [
        "https://one:8443/pulsar",
        "https://other:8443/pulsar",
    ]
