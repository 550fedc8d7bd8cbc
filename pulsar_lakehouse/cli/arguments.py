"""What arguments name: something declared, a key of it, or an interval; and what a step is told beside them."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar

import typer
from pyspark.sql.types import LongType

from pulsar_lakehouse.errors import NOTHING_NEW, ConfigurationError
from pulsar_lakehouse.jobs.new_data import Step, reasons
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity

Declared = TypeVar("Declared")

Every = Annotated[str, typer.Option(help="Keep running, with one round per interval, such as 2s or 1m.")]
Facts = Annotated[str, typer.Option(help="The topic of the facts. Needed only if there are several.")]
Note = Annotated[str, typer.Option(help="Why, for the record.")]


def chosen(
    names: Iterable[str] | None, known: Mapping[str, Declared], *, lacking: str = "not declared; there are"
) -> list[Declared]:
    """What the names stand for, by default all. Raises ConfigurationError for one that is not known."""
    for name in names or ():
        if name not in known:
            raise ConfigurationError(f"{name}: {lacking} {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names or known)]


def end_if_nothing_is_new(settings: Settings, step: Step) -> None:
    """End the command if it should do nothing unless something is new for the step; say why there is something."""
    if settings.run.only_new:
        reason = next(reasons(settings, [step]), None)
        CONSOLE.say(f"{reason.kind.capitalize()}: {reason.line}" if reason else f"Nothing new to {step}")
        if reason is None:
            raise typer.Exit(NOTHING_NEW)


def seconds(text: str, *, option: str = "--every") -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not found:
        raise ConfigurationError(f"{option} {text}: must be a number with ms, s, m or h, such as 2s")
    return float(found[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[found[2]]


def key_of(known: Mapping[str, Declared], text: str, *, option: str = "") -> tuple[Declared, str]:
    """The declaration and the key that a text such as `users:123` names. Raises ConfigurationError if it names none."""
    name, _, key = text.partition(":")
    if name not in known or not key:
        names, example = ", ".join(known) or "none", next(iter(known), "users")
        raise ConfigurationError(f"{option}{text}: must be one of {names} and a key, such as {example}:123")
    declared = known[name]
    if isinstance(declared, Entity) and (right := right_key(declared, key)):
        raise ConfigurationError(f"{option}{text}: a key of {name} is {right}")
    return declared, key


def right_key(entity: Entity, key: str) -> str | None:
    """What a key would be, if this is none; None if it is one, as far as that can be known without Spark."""
    if len(entity.keys) > 1:
        names = ", ".join(entity.keys)
        return None if _is_array(key, len(entity.keys)) else f'a JSON array of {names}, such as [7,"EUR"]'
    sql = entity.columns[entity.keys[0]]
    is_number = any(field.name == sql and field.dataType == LongType() for field in entity.topic.fields)
    return f"a BIGINT, such as {entity.name}:123" if is_number and not re.fullmatch(r"-?\d+", key) else None


def _is_array(text: str, length: int) -> bool:
    try:
        values = json.loads(text)
    except ValueError:
        return False
    return isinstance(values, list) and len(values) == length
