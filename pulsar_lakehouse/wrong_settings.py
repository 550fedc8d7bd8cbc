"""Says which setting is wrong: the variable or the line of the file, what would be right, and a name."""

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from pulsar_lakehouse.near import nearest

PREFIX = "LAKEHOUSE_"
FILE = Path("lakehouse.toml")
Root = type[BaseModel]
"""The class of all settings."""

MUST = {
    "bool_parsing": "must be true or false",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "string_type": "must be a text",
    "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be {le} or less",
    "too_short": "must have {min_length} characters or more",
}
"""What a value must be, by pydantic's type of the error."""


def first_problem(
    error: ValidationError, settings: Root, secrets: Sequence[tuple[str, str]], overrides: Collection[str]
) -> str:
    """The first setting that is unknown or wrong: where it is given, and what would be right.

    Values of `secrets` are not shown. `overrides` are settings that neither the environment nor the file gives.
    """
    first = error.errors()[0]
    path = tuple(str(part) for part in first["loc"] if part != "[key]")
    hidden = isinstance(first["input"], dict) or path[:2] in secrets
    given = "" if hidden else f" (given: {first['input']!r})"
    kind, problem = first["type"], first["msg"].removeprefix("Value error, ")
    above = _section(settings, path[:-1])
    if kind == "extra_forbidden" and above:
        what = "section" if hidden and len(path) == 1 else "setting"
        problem = f"no such {what}{_meant(path, above)}"
    elif kind in ("model_type", "dict_type") and _section(settings, path):
        problem = _one_by_one(path, settings)
    elif kind in MUST:
        problem = MUST[kind].format(**first.get("ctx", {}))
    return f"{'.'.join(path) if path[:1] and path[0] in overrides else _place(path)}: {problem}{given}"


def not_json(name: str, settings: Root, reason: BaseException | None) -> str:
    """What is wrong with a variable whose value, or that of one under it, is not JSON."""
    if _variable((name,)) in _given() and _section(settings, (name,)):
        return f"{_variable((name,))}: {_one_by_one((name,), settings)}"
    return f"{_variable((name,))}…: not JSON: {reason}"


def unknown_variable(settings: Root) -> str:
    """What is wrong with a variable that begins like ours and is none; empty if all are."""
    sections = {name: _section(settings, (name,)) for name in settings.model_fields}
    under = [
        f"{name}__{each}".upper() for name, section in sections.items() if section for each in section.model_fields
    ]
    known = [name.upper() for name in sections]
    for variable in os.environ:
        first, *others = variable.upper().removeprefix(PREFIX).split("__")
        if variable.upper().startswith(PREFIX) and first not in known:
            meant = nearest(first, known if others else (*under, *known), cutoff=0.75)
            near = f"; did you mean {PREFIX}{'__'.join((meant, *others))}?" if meant else ""
            return f"{variable}: no such setting{near or f'; there are {_names(settings, PREFIX)}'}"
    return ""


def _meant(path: tuple[str, ...], section: type[BaseModel]) -> str:
    """The end of a line about a setting that a section does not have: the one that is like it, or all."""
    if not (meant := nearest(path[-1], section.model_fields)):
        return f"; there are {_names(section)}"
    return f"; did you mean {_variable((*path[:-1], meant)) if _variable(path) in _given() else meant}?"


def _one_by_one(path: tuple[str, ...], settings: Root) -> str:
    section = _section(settings, path)
    name = next(iter(section.model_fields)) if section else "name"
    example = _variable((*path, name)) if _variable(path) in _given() else f"{name} = ... under [{'.'.join(path)}]"
    return f"is a section: give its settings one by one, such as {example}"


def _names(section: type[BaseModel], prefix: str = "") -> str:
    return ", ".join(sorted(prefix + (name.upper() if prefix else name) for name in section.model_fields))


def _section(settings: Root, path: tuple[str, ...]) -> type[BaseModel] | None:
    """The settings under this path; None if there are none, as in a dict."""
    section: type[BaseModel] | None = settings
    for name in path:
        kind = section.model_fields[name].annotation if section and name in section.model_fields else None
        section = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return section


def _variable(path: tuple[str, ...]) -> str:
    return f"{PREFIX}{'__'.join(path)}".upper()


def _given() -> dict[str, str]:
    """The environment, by names as we write them."""
    return {name.upper(): value for name, value in os.environ.items() if value}


def _place(path: tuple[str, ...]) -> str:
    """Where a setting is given: the variable, or the file with the line and the name; else only its name."""
    given, name = _given(), ".".join(path) or "settings"
    for end in range(len(path), 0, -1):
        if (variable := _variable(path[:end])) in given:
            return variable if end == len(path) else f"{variable}: {'.'.join(path[end:])}"
    return f"{FILE}:{line}: {name}" if (line := line_in_file(path)) else name


def line_in_file(path: tuple[str, ...]) -> int:
    """The number of the line of `lakehouse.toml` that gives a setting or begins a section; 0 if none does."""
    section: tuple[str, ...] = ()
    best = 0
    for number, line in enumerate(FILE.read_text().splitlines() if FILE.exists() else (), 1):
        header, setting = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line), re.match(r"\s*([\w.\"'-]+)\s*=", line)
        here = section
        if header:
            here = section = tuple(part.strip(" \"'") for part in header[1].split("."))
        elif setting:
            here = (*section, *(part.strip(" \"'") for part in setting[1].split(".")))
        if ".".join(here) == ".".join(path) and (header or setting):
            return number
        if (header or setting) and not best and here[: len(path)] == path:
            best = number
    return best
