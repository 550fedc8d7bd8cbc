"""How many examples of a property a run of all tests can afford."""

from typing import Any

from hypothesis import HealthCheck, Phase, settings


def few(count: int) -> Any:
    """The same few each time, which are not made smaller when they fail; in the profile `search`, all that it says."""
    if settings.get_current_profile_name() == "search":
        return settings()
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
