"""What a project imports: the names in `__all__` for its declarations, `testing` for its tests, `airflow` for its DAGs.

Each submodule imports this module first, so a name is loaded when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsar_lakehouse.contracts.checks import fail, quarantine, warn
    from pulsar_lakehouse.contracts.envelopes import Debezium
    from pulsar_lakehouse.contracts.functions import function
    from pulsar_lakehouse.contracts.services import service
    from pulsar_lakehouse.contracts.sources import DeltaTable, Files, Postgres
    from pulsar_lakehouse.contracts.topics import Encoding, KeyEncoding, Topic
    from pulsar_lakehouse.gold.enrichment.declaration import Enrichment, Lookup
    from pulsar_lakehouse.gold.enrichment.match import Match
    from pulsar_lakehouse.silver.entity import Entity

__all__ = [
    "Debezium",
    "DeltaTable",
    "Encoding",
    "Enrichment",
    "Entity",
    "Files",
    "KeyEncoding",
    "Lookup",
    "Match",
    "Postgres",
    "Topic",
    "fail",
    "function",
    "quarantine",
    "service",
    "warn",
]
_MODULES = {
    "contracts.checks": ("fail", "quarantine", "warn"),
    "contracts.envelopes": ("Debezium",),
    "contracts.services": ("service",),
    "contracts.functions": ("function",),
    "contracts.sources": ("DeltaTable", "Files", "Postgres"),
    "contracts.topics": ("Encoding", "KeyEncoding", "Topic"),
    "gold.enrichment.declaration": ("Enrichment", "Lookup"),
    "gold.enrichment.match": ("Match",),
    "silver.entity": ("Entity",),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
