"""`lakehouse send`: messages from a file, to try a topic."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen
from pulsar_lakehouse.contracts.topics import Topic, in_full
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.message_lines import read_lines
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings, load_settings


def send_command(
    name: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="A declared topic; of several in one declaration, its name in Pulsar."),
    ],
    file: Annotated[
        Path,
        typer.Argument(
            help='A message a line, such as {"key": "1", "event_time": "2026-01-31T12:00:00Z", "payload": {"id": 1}}: '
            "the payload alone is required, and null makes a tombstone. It can also have properties, a schema, and "
            "key_bytes or payload_bytes in base64. - reads standard input."
        ),
    ],
) -> None:
    """Send the messages of a file to a topic, with its schema or with their own."""
    settings = load_settings()
    topic = _topic_named(name, [*pipeline_of(settings).kinds_in_pulsar.values()], settings)
    messages = list(read_lines(_text(file).split("\n"), str(file), topic))  # all are read before any is sent
    # Each schema has its own producer, and what one has sent arrives before the next one sends.
    streams = [(topic, list(those)) for _, those in groupby(messages, key=lambda message: message.schema)]
    sent = produce(streams, broker.healthy_endpoint(settings), settings)
    report.say(f"Acknowledged: {sent.get(topic.name, 0):,} {name}")


def _topic_named(name: str, declared: Sequence[Topic], settings: Settings) -> Topic:
    """The topic with one name in Pulsar. Raises ConfigurationError if there is none, or if it can be several."""
    known = {each.name: each for each in declared if not each.is_several}
    namespace = settings.pulsar.namespace
    for several in (each for each in declared if each.is_several and name not in known):
        if several.lands(in_full(name, namespace), namespace):
            return replace(several, topic=name)
        if name == several.name:
            raise ConfigurationError(f"{name}: is several topics in Pulsar: name one of {several.own_name}")
        known |= {each: replace(several, topic=each) for each in several.own_names}
    [topic] = chosen([name], known)
    return topic


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: can't be read: {error}") from None
