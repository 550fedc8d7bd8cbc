"""Notes on a topic's subscription which warehouse it serves, so that two pipelines don't share it by mistake."""

from contextlib import suppress

from obstore.exceptions import BaseError

from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import BrokerError, PermanentError
from pulsar_lakehouse.pulsar.endpoint import Endpoint, admin_path, call_admin
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.storage import warehouse_id

WAREHOUSE = "lakehouse.warehouse"
"""The property of the subscription with the id of the warehouse."""
MISSING = 404


def claim_subscription(topic: Topic, endpoint: Endpoint, settings: Settings, *, take_over: bool = False) -> None:
    """Note the id of the warehouse on the topic's subscription, if there is one.

    Two pipelines that share a subscription lose messages: the broker deletes what one of them has acknowledged, even if
    the other has not landed it. Raises PermanentError if the subscription has another id, unless `take_over`.
    """
    name = topic.full_name(settings.pulsar.namespace)
    subscription, id = topic.subscription, warehouse_id(settings)
    path = f"{admin_path(name)}/subscription/{subscription}/properties"
    found = call_admin("GET", path, endpoint, settings, accept=(MISSING,))
    if found.status_code == MISSING:
        return
    properties = found.json()
    if take_over or WAREHOUSE not in properties:
        call_admin("PUT", path, endpoint, settings, body={**properties, WAREHOUSE: id})
    elif properties[WAREHOUSE] != id:
        raise PermanentError(
            f"the subscription {subscription} of {name} serves another warehouse: give each project a "
            "namespace of its own. If that warehouse is gone for good, run `lakehouse land --take-over`"
        )


def claim_again(topic: Topic, endpoint: Endpoint, settings: Settings) -> None:
    """Claim a subscription that the first batch has created. If that fails, the next round does it."""
    with suppress(BrokerError, BaseError):
        claim_subscription(topic, endpoint, settings)
