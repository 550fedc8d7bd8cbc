"""Sends events to the backend that OpenLineage's own configuration names, if it names one.

A thread does so. A backend that is slow or down delays no step, and loses events.
"""

import os
import threading
import time
from functools import cache
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.progress import CONSOLE

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

MOST_EVENTS = 1_000
"""The most events that wait to be sent. Further ones are left out."""
CLOSE_SECONDS = 5.0
"""The most seconds that the end of a command waits for events to be sent."""


def is_disabled() -> bool:
    return os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true"


class Backend:
    def __init__(self, client: "OpenLineageClient") -> None:
        self._client, self._has_failed = client, False
        self._events: Queue[RunEvent] = Queue(MOST_EVENTS)
        threading.Thread(target=self._send_all, name="lineage", daemon=True).start()

    def send(self, event: "RunEvent") -> None:
        try:
            self._events.put_nowait(event)
        except Full:
            self._complain("takes events too slowly")

    def close(self) -> None:
        """Wait until all events are sent, but not for a backend that has failed."""
        until = time.monotonic() + CLOSE_SECONDS
        while self._events.unfinished_tasks and not self._has_failed and time.monotonic() < until:
            time.sleep(0.02)
        if not self._has_failed:
            try:
                self._client.close(max(0.0, until - time.monotonic()))
            except Exception as error:
                self._complain(f"does not take events: {type(error).__name__}")

    def _send_all(self) -> None:
        while True:
            event = self._events.get()
            try:
                self._client.emit(event)
            except Exception as error:  # each transport has its own errors, and their texts may have secrets
                self._complain(f"does not take events: {type(error).__name__}")
            finally:
                self._events.task_done()

    def _complain(self, why: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            CONSOLE.say(f"Lineage: the backend ({self._client.transport.kind}) {why}. The pipeline goes on without it.")


@cache
def backend() -> Backend | None:
    """The configured backend. Raises ConfigurationError, whose message is one line, for a wrong configuration."""
    file, known = _file(), ("OPENLINEAGE_URL", "OPENLINEAGE__")
    if is_disabled() or (file is None and not any(name.startswith(known) for name in os.environ)):
        return None

    from openlineage.client import OpenLineageClient  # takes half a second

    try:
        client = OpenLineageClient()
        is_named = client.transport.kind != "console" or bool((client.config.transport or {}).get("type"))
    except Exception as error:
        line = str(error).partition("\n")[0]
        raise ConfigurationError(f"the configuration of OpenLineage: {type(error).__name__}: {line}") from None
    if file is not None and not is_named:
        raise ConfigurationError(f"{file}: must be YAML that names a transport of OpenLineage")
    return Backend(client) if is_named else None


def close_backend() -> None:
    """Send what is left, as far as that takes no longer than some seconds."""
    if backend.cache_info().currsize and (opened := backend()):
        opened.close()
    backend.cache_clear()


def _file() -> Path | None:
    """The file where OpenLineage looks for its configuration: the first that is named or exists."""
    if named := os.environ.get("OPENLINEAGE_CONFIG"):
        return Path(named)
    places = (Path("openlineage.yml"), Path.home() / ".openlineage" / "openlineage.yml")
    return next((path for path in places if path.is_file()), None)
