"""The durable subscription of a topic: it is there, and its cursor follows what has been read."""

from .planning import Plan
from .positions import Offsets


def acknowledge(plan: Plan, after: Offsets) -> None:
    """Move the cursor behind what has been read, for partitions whose cursor is elsewhere."""
    subscription = plan.options.subscription
    if not subscription:
        return
    for partition, position in after.items():
        held = plan.held.get(partition)
        if held and position.entry >= 0 and position != held.cursor(subscription):
            plan.admin.acknowledge(partition, subscription, position)


def ensure_subscriptions(plan: Plan) -> None:
    """Create missing subscriptions, and partitions. They hide lost data, so it must be looked for before."""
    if subscription := plan.options.subscription:
        without = [name for name, held in plan.held.items() if held.cursor(subscription) is None]
        for partition in [*without, *plan.missing]:
            plan.admin.ensure_subscription(partition, subscription)
