"""`lakehouse send`: messages from a file, to try a topic."""

import sys
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.message_lines import read_lines
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import load_settings


def send_command(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="A declared topic.")],
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
    [topic] = chosen([name], pipeline_of(settings).kinds_in_pulsar)
    messages = list(read_lines(_text(file).split("\n"), str(file), topic))  # all are read before any is sent
    # Each schema has its own producer, and what one has sent arrives before the next one sends.
    streams = [(topic, list(those)) for _, those in groupby(messages, key=lambda message: message.schema)]
    sent = produce(streams, broker.healthy_endpoint(settings), settings)
    report.say(f"Acknowledged: {sent.get(name, 0):,} {name}")


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: can't be read: {error}") from None
