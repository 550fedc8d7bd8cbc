"""Domains: each is a project with declarations, a workload and example queries, which `lakehouse demo` runs."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, Self, cast

from pydantic import Field

from pulsar_lakehouse.pulsar.produce import Message

Amount = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]

DOMAINS = {file.parent.name: file.parent for file in sorted(Path(__file__).resolve().parent.glob("*/workload.py"))}
"""The folders, by name."""


class Expected(NamedTuple):
    """What a query over the tables must give in the end, in any order."""

    what: str
    query: str
    rows: list[tuple[Any, ...]]


class Workload(Protocol):
    """The messages of a domain, in two phases: the dataclass `Workload` in the domain's `workload.py`.

    The same values of its fields give the same messages.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    FIRST: ClassVar[str]
    """What arrives in the first phase, as the demo tells it."""
    LATE: ClassVar[str]

    @classmethod
    def of(cls, size: int) -> Self:
        """A workload of about so many messages."""

    def first(self, topic: str) -> Iterator[Message]:
        """The first phase of a topic: without messages if the workload has none for it.

        Its name is that of the declaration; of several that are declared together, each has its own.
        """

    def late(self, topic: str) -> Iterator[Message]:
        """The second phase of a topic."""

    def endless(self, rate: float) -> tuple[str, Iterator[Message]]:
        """A topic, and messages of now on for it without an end, `rate` a second."""

    def expected(self) -> Iterator[Expected]:
        """What both phases lead to, as far as it is known without the pipeline."""


def workload_of(domain: str) -> type[Workload]:
    return cast(type[Workload], import_module(f"pulsar_lakehouse.domains.{domain}.workload").Workload)
