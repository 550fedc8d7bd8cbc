"""Declares services: functions that ask somebody outside, such as a geocoder, once for each of their arguments."""

import inspect
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import date
from functools import cached_property
from typing import Any

from pyspark.sql import types as T

from pulsar_lakehouse.contracts.arguments import checked
from pulsar_lakehouse.contracts.sources import FIELDS, seconds_of
from pulsar_lakehouse.contracts.topics import Fields, Topic
from pulsar_lakehouse.errors import ConfigurationError

TYPES: Mapping[object, T.DataType] = {
    str: T.StringType(),
    int: T.LongType(),
    bool: T.BooleanType(),
    date: T.DateType(),
}
"""The types that arguments can have, as types of fields."""
READ: Mapping[type[T.DataType], Callable[[str], object]] = {
    T.StringType: str,
    T.LongType: int,
    T.BooleanType: {"true": True, "false": False}.__getitem__,
    T.DateType: date.fromisoformat,
}
"""What reads a value of such a type from the text of a key."""


@checked
@dataclass(frozen=True)
class Service:
    """An async function whose answers are the state of an entity, by the function's arguments.

    It is called for each key that facts wait for, and its answer is kept as a message. The keyword arguments are those
    of the decorator `service`.

    Raises ConfigurationError for a function that is not async, or has arguments of other types than `str`, `int`,
    `bool` and `date`, and for numbers that are out of range.
    """

    function: Callable[..., Awaitable[object]]
    """The function that is decorated. Its name is that of the entity, and its arguments are the key. It returns a dict
    of what `returns` declares, or `None` if there is nothing: an answer, too. What it raises is a failure, after which
    it is called again. Example: `function=geocode`"""
    _: KW_ONLY
    returns: Fields = FIELDS
    """The typed fields of an answer, as DDL text or a StructType. Example: `returns="lat DOUBLE, lon DOUBLE"`"""
    timeout: str = "10 seconds"
    """How long a call may take. Example: `timeout="2 seconds"`"""
    retries: int = 3
    """How many times a call that failed is repeated, after longer and longer pauses, before the key has to wait for
    another run. Example: `retries=1`"""
    rate: int | float = 10
    """The most calls in a second. Example: `rate=0.5`"""
    cache_days: int = 0
    """Days after which an answer can't be used by facts, so that the service is asked again; 0 keeps it forever.
    Example: `cache_days=30`"""

    def __post_init__(self) -> None:
        if wrong := list(self._mistakes()):
            raise ConfigurationError("\n".join(wrong))

    def __call__(self, *arguments: object) -> Awaitable[object]:
        return self.function(*arguments)

    @property
    def name(self) -> str:
        """The name of its bronze table, and of the entity."""
        return str(getattr(self.function, "__name__", self.function))

    @cached_property
    def topic(self) -> Topic:
        """What the messages with its answers decode as."""
        return Topic(self.name, self.columns)

    @cached_property
    def arguments(self) -> T.StructType:
        """The fields of the key: the arguments of the function."""
        kinds = self._kinds()
        return T.StructType([T.StructField(name, TYPES[kind], nullable=False) for name, kind in kinds.items()])

    @cached_property
    def columns(self) -> T.StructType:
        """The fields of a message: the arguments, and what `returns` declares."""
        return T.StructType([*self.arguments, *self.returns])

    @property
    def place(self) -> str:
        """What graphs and errors name it."""
        return f"service {self.name}"

    @property
    def timeout_seconds(self) -> int:
        return seconds_of(self.timeout)

    def mistakes(self) -> Iterator[str]:
        """What can be wrong with it is told when it is declared."""
        return iter(())

    def arguments_in(self, key: str) -> list[Any] | None:
        """The arguments in the text of a key, which `contracts.keys.key_text` has written; None if they are others."""
        try:
            texts = [key] if len(self.arguments) == 1 else json.loads(key)
            pairs = zip(self.arguments, texts, strict=True)
            return [_read(field.dataType, text) for field, text in pairs]
        except (ValueError, KeyError, TypeError):
            return None

    def _kinds(self) -> dict[str, object]:
        """The types of the arguments, as Python knows them."""
        given = inspect.get_annotations(self.function, eval_str=True)
        return {name: given.get(name) for name in inspect.signature(self.function).parameters}

    def _mistakes(self) -> Iterator[str]:
        if not inspect.iscoroutinefunction(self.function):
            yield f"must be a function that begins with `async def {self.name}`"
            return
        yield from self._wrong_arguments()
        if not self.timeout_seconds:
            yield f"timeout: {self.timeout}: must be a time such as 2 seconds or 1 minute"
        for what, number in (("retries", self.retries), ("cache_days", self.cache_days)):
            if number < 0:
                yield f"{what}: {number}: must be 0 or more"
        if not 0 < self.rate < math.inf:
            yield f"rate: {self.rate}: must be more than 0 calls per second, such as 10"

    def _wrong_arguments(self) -> Iterator[str]:
        parameters = inspect.signature(self.function).parameters.values()
        if not parameters:
            yield "has no arguments: give it those that are the key, such as address: str"
        for each in parameters:
            if each.kind is not each.POSITIONAL_OR_KEYWORD:
                yield f"{each}: must be an argument with a name of its own, such as address: str"
        for name, kind in self._kinds().items():
            if kind not in TYPES:
                shown = "has no type" if kind is None else f"is {getattr(kind, '__name__', kind)}"
                yield f"{name}: {shown}: must be str, int, bool or date"


def _read(kind: T.DataType, value: object) -> object:
    if isinstance(value, str):
        read = READ[type(kind)](value)
        if str(read).lower() != value.lower():  # such as 007, which is the text of no number
            raise ValueError
        return read
    if type(value) is not (bool if isinstance(kind, T.BooleanType) else int):
        raise TypeError
    return value


def service(*given: object, **options: Any) -> Callable[[Callable[..., Awaitable[object]]], Service]:
    """Make an async function the source of an entity. The arguments are those of Service.

    Example: `@service(returns="lat DOUBLE, lon DOUBLE", timeout="2 seconds", rate=50)`.
    Raises ConfigurationError if an argument is wrong, or is not named.
    """
    if given:
        raise ConfigurationError('service takes its arguments by name, such as @service(returns="lat DOUBLE")')

    def declare(function: Callable[..., Awaitable[object]]) -> Service:
        return Service(function, **options)

    return declare
