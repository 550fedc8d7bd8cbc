"""Checks the arguments of a declaration against its types before it is made, and says all that is wrong at once."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import signature
from textwrap import shorten
from types import GenericAlias, UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pulsar_lakehouse.errors import ConfigurationError

Declared = TypeVar("Declared")
Hint = type | UnionType | GenericAlias
"""A type as declarations have it, such as `str`, `str | None` or `Mapping[str, Check]`."""


def checked(kind: type[Declared]) -> type[Declared]:
    """A decorator for the dataclass of a declaration: arguments of other types raise ConfigurationError, a line each.

    A field that is a descriptor takes what its `accepts` says.
    """
    make: Callable[..., None] = kind.__init__
    takes = signature(make)

    @wraps(make)
    def init(self: Declared, *arguments: object, **named: object) -> None:
        try:
            given = takes.bind(self, *arguments, **named).arguments
        except TypeError:  # the dataclass says it better
            make(self, *arguments, **named)
            return
        if wrong := list(_wrong(kind, given)):
            raise ConfigurationError("\n".join(wrong))
        make(self, *arguments, **named)

    kind.__init__ = init  # type: ignore[method-assign,assignment]
    return kind


def _wrong(kind: type, given: Mapping[str, object]) -> Iterator[str]:
    hints = get_type_hints(kind)
    within = f"{kind.__name__.lower()} {given['name']}: " if isinstance(given.get("name"), str) else ""
    for name, hint in hints.items():
        wanted = getattr(hint, "accepts", hint)
        if name in given and not _fits(value := given[name], wanted):
            text = shorten(value if isinstance(value, str) else repr(value), 60, placeholder="...")
            yield f"{within}{name}: {text}: must be {_wanted(wanted)}"


def _fits(value: object, hint: Hint) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in inner
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(each, inner[0]) for each in value)
    if origin is re.Pattern:
        return isinstance(value, re.Pattern) and isinstance(value.pattern, inner)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items()
        )
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    kind = origin or hint
    return isinstance(kind, type) and isinstance(value, kind)


def _wanted(hint: Hint) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in inner)
    if origin is tuple:
        one = _wanted(inner[0]).removeprefix("a ").removeprefix("an ")
        example = '"id"' if inner[0] is str else "..."
        return f"a tuple of {one}s, such as ({example},), with the comma"
    if origin is Mapping:
        return f"a dict of {_wanted(inner[1]).removeprefix('a ')}s by name"
    if origin in (Union, UnionType):
        return " or ".join(_wanted(each) for each in inner)
    hint = origin or hint
    assert isinstance(hint, type)
    words = {str: "a text", int: "a whole number", bool: "True or False", type(None): "None"}
    words[re.Pattern] = 're.compile("...")'
    return words.get(hint) or f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}"
