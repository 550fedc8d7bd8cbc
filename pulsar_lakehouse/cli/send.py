"""`lakehouse send`: messages from a file, to try a topic."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.cli.arguments import chosen
from pulsar_lakehouse.contracts.topics import Encoding
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
            "the payload alone is required, and null makes a tombstone. - reads standard input."
        ),
    ],
) -> None:
    """Send the messages of a file to a topic of JSON payloads."""
    settings = load_settings()
    [topic] = chosen([name], {topic.name: topic for topic in pipeline_of(settings).topics})
    if topic.encoding != Encoding.JSON:
        raise ConfigurationError(f"{name}: is declared as {topic.encoding}: only JSON payloads can be sent")
    messages = list(read_lines(_text(file).split("\n"), str(file)))  # all are read before any is sent
    sent = produce([(topic, messages)], broker.healthy_endpoint(settings), settings)
    report.say(f"Acknowledged: {sent[name]:,} {name}")


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: can't be read: {error}") from None
