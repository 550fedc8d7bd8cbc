"""The schemas that are registered in Pulsar for a topic, as a message refers to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RegisteredSchema:
    """A version of a topic's schema. Versions begin again at 0 if a topic or its schema is made anew."""

    version: int
    type: str
    """As Pulsar's admin API names it, such as JSON, AVRO, STRING or KEY_VALUE."""
    data: str
    """Its text, as the admin API gives it."""
    properties: Mapping[str, str] = field(default_factory=dict)
    registered_at: int = 0
    """Epoch milliseconds, by the broker's clock."""
    topic: str = ""
    """The full name of its topic, if a table has messages of several: each counts its own versions."""
