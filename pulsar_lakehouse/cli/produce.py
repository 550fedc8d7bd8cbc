"""`lakehouse produce`: send the messages of a domain's workload."""

import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.domains import DOMAINS, Workload, workload_of
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_names import by_name
from pulsar_lakehouse.settings import DECLARATIONS, Settings, load_settings
from pulsar_lakehouse.terminal import shown


def produce_command(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="More about the workload, such as seed=8 or malformed=0.1."),
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="About how many messages to send.")] = 100_000,
    rate: Annotated[str, typer.Option(help="Messages a second, such as 1000/s. Default: as fast as possible.")] = "",
    forever: Annotated[bool, typer.Option("--forever", help="Send messages of now, until Ctrl-C.")] = False,
) -> None:
    """Send the synthetic messages of a domain, with late, duplicate, unordered, changed, deleted and malformed ones.

    The same seed gives the same messages: sent again, they are duplicates. With another seed, facts have the same keys,
    so most of them are duplicates, too. --forever sends new ones.
    """
    settings = load_settings()
    pace = _rate(rate)
    workload = _workload(settings, size, parts or ())
    topics = by_name(pipeline_of(settings).topics)
    if forever:
        name, endless = workload.endless(pace or 1000.0)
        streams = [(topics[name], endless)]
    else:
        streams = [(topic, phase(name)) for phase in (workload.first, workload.late) for name, topic in topics.items()]
    sent = produce(streams, broker.healthy_endpoint(settings), settings, rate=pace)
    report.say("Acknowledged: " + ", ".join(f"{count:,} {topic}" for topic, count in sent.items()))


def _workload(settings: Settings, size: int, parts: Sequence[str]) -> Workload:
    """The workload of the project's domain. Raises ConfigurationError if it is no domain, or for a bad part."""
    projects = {folder / DECLARATIONS: name for name, folder in DOMAINS.items()}
    if settings.declarations not in projects:
        line = f"only {', '.join(DOMAINS)} have synthetic messages: `lakehouse send` sends those of a file"
        raise ConfigurationError(f"{shown(settings.declarations)}: {line}")
    kind = workload_of(projects[settings.declarations])
    known = [each.name for each in fields(kind)]
    given = dict(part.partition("=")[::2] for part in parts)
    for name in given:
        if name not in known:
            raise ConfigurationError(f"{name}: no part of the workload; there are {', '.join(known)}")
    try:
        return TypeAdapter(kind).validate_python(asdict(kind.of(size)) | given)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(f"{first['loc'][0]}={first['input']}: {first['msg']}") from None


def _rate(text: str) -> float | None:
    if not text:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", text)
    if not found or float(found[1]) == 0:
        raise ConfigurationError(f"--rate {text}: must be messages a second, such as 1000/s")
    return float(found[1])
