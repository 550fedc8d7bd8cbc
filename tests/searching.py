"""How many examples of each property a run of all tests tries."""

from hypothesis import HealthCheck, Phase, settings


def few(count: int) -> settings:
    """The same few examples each time, which are not shrunk when they fail; in the profile `search`, its settings."""
    if settings.get_current_profile_name() == "search":
        return settings()
    return settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
