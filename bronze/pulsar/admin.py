"""The few calls of Pulsar's admin API that planning needs."""

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import requests

from bronze.pulsar.options import NoAnswerError, Options, PulsarSourceError
from bronze.pulsar.positions import BEGINNING, Ledger, Position

TIMEOUT = (10, 60)
BUSY_PAUSES = (0.1,) * 100
"""Seconds to wait for a subscription that somebody else is making."""


@dataclass(frozen=True, kw_only=True)
class EntryMetadata:
    messages: int
    """The size of its batch, or 1."""
    chunk: int
    """Which chunk of a large message it is, from 0; the last one stands for the message."""
    chunks: int
    uuid: str | None
    """Names the large message a chunk is of."""
    is_marker: bool
    """The broker's own note (of a transaction, say), which no reader sees."""

    @property
    def is_message(self) -> bool:
        return not self.is_marker and self.chunk == self.chunks - 1


class Held(NamedTuple):
    """What the broker has of a partition."""

    ledgers: list[Ledger]
    """Those with readable entries, oldest first."""
    cursors: Mapping[str, Any]
    """By subscription."""
    last: Position
    """The last entry ever confirmed, still there or not."""
    first: int
    """The oldest ledger that is still there, though it may be empty."""
    created: str | None = None
    """When the partition was made: one that is made anew has another time. None if nobody asked."""

    def cursor(self, subscription: str | None) -> Position | None:
        """Up to where a subscription has acknowledged all; None if it does not exist."""
        found = self.cursors.get(subscription) if subscription else None
        return Position.parse(found["markDeletePosition"]) if found else None


class Admin:
    def __init__(self, options: Options) -> None:
        self._url = f"{options.admin_url}/admin/v2"
        self._session = requests.Session()
        self._session.trust_env = "//127.0.0.1:" not in self._url  # no proxy leads to this machine
        if options.token:
            self._session.headers["Authorization"] = f"Bearer {options.token}"
        if options.tls_trust_certs:
            self._session.verify = options.tls_trust_certs

    def partitions(self, topic: str) -> list[str]:
        """The partitions of a topic by full name; the topic itself if it is not partitioned."""
        count = self._call("GET", topic, "/partitions").json()["partitions"]
        if count == 0:
            self._call("GET", topic, "/internalStats")  # raises if there is no such topic
            return [topic]
        return [f"{topic}-partition-{index}" for index in range(count)]

    def ledgers(self, partition: str) -> Held:
        """What the broker holds of a partition."""
        stats = self._call("GET", partition, "/internalStats").json()
        last = Position.parse(stats["lastConfirmedEntry"])
        ledgers = []
        for ledger in stats["ledgers"]:
            id, entries, size = ledger["ledgerId"], ledger["entries"], ledger["size"]
            if id == last.ledger:  # the open ledger counts what is confirmed; its own figures lag behind
                entries, size = last.entry + 1, max(size, stats["currentLedgerSize"])
            if id <= last.ledger and entries > 0:
                ledgers.append(Ledger(id, entries, max(size, entries)))
        first = min((ledger["ledgerId"] for ledger in stats["ledgers"]), default=last.ledger + 1)
        return Held(ledgers, stats["cursors"], last, first)

    def dated_ledgers(self, partition: str) -> Held:
        """What the broker holds of a partition, and when that was made, which takes as long again."""
        made = self._call("GET", partition, "/internal-info").json()
        created = made.get("creationDate")
        return self.ledgers(partition)._replace(created=created and _in_utc(created))

    def entry(self, partition: str, position: Position) -> EntryMetadata | None:
        """What an entry says of itself, without its payload; None if the broker has deleted it."""
        path = f"/ledger/{position.ledger}/entry/{position.entry}"
        with self._call("GET", partition, path, accept=(404,)) as response:
            if response.status_code == 404:
                return None
            header = response.headers.get
            return EntryMetadata(
                messages=int(header("X-Pulsar-num-batch-message", 1)),
                chunk=int(header("X-Pulsar-chunk-id", 0)),
                chunks=int(header("X-Pulsar-num-chunks-from-msg", 1)),
                uuid=header("X-Pulsar-uuid"),
                is_marker="X-Pulsar-marker-type" in response.headers,
            )

    def position_before(self, partition: str, publish_time: int) -> Position:
        """The last entry published before `publish_time`, in epoch milliseconds."""
        found = self._call("GET", partition, f"/messageid/{publish_time}").json()
        return Position(found["ledgerId"], found["entryId"] - 1)

    def ensure_subscription(self, partition: str, subscription: str) -> None:
        """Create a durable subscription at the earliest message, unless it exists."""
        body = {"ledgerId": BEGINNING.ledger, "entryId": BEGINNING.entry, "partitionIndex": -1}
        path = f"/subscription/{quote(subscription, safe='')}"
        for pause in (*BUSY_PAUSES, None):
            answer = self._call("PUT", partition, path, json=body, accept=(409, 412))
            if answer.status_code != 412:
                return
            # Busy while it is being made, by another stream, or for a new partition by the broker itself.
            if pause is None or "Busy" not in f"{answer.reason} {answer.text}":
                raise NoAnswerError(f"{partition}: the broker answered 412 {answer.reason}")
            time.sleep(pause)

    def acknowledge(self, partition: str, subscription: str, position: Position) -> None:
        """Acknowledge all up to and including `position`."""
        body = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1, "excluded": True}
        path = f"/subscription/{quote(subscription, safe='')}/resetcursor"
        if self._call("POST", partition, path, json=body, accept=(404,)).status_code == 404:
            raise NoAnswerError(f"{partition}: there is no subscription {subscription} any more")

    def _call(
        self, method: str, topic: str, path: str, *, json: object = None, accept: tuple[int, ...] = ()
    ) -> requests.Response:
        url = f"{self._url}/{quote(topic.replace('://', '/'))}{path}"
        try:
            response = self._session.request(method, url, json=json, timeout=TIMEOUT, stream=True)
        except requests.RequestException as error:
            if problem := _certificate_problem(error):
                raise PulsarSourceError(f"{self._url}: the certificate is refused: {problem}") from error
            raise NoAnswerError(f"{self._url}: no answer from the broker: {type(error).__name__}") from error
        if response.ok or response.status_code in accept:
            return response
        match response.status_code:
            case 401 | 403:
                given = "the token" if "Authorization" in self._session.headers else "a call without a token"
                raise PulsarSourceError(f"{topic}: the broker refused {given}")
            case 404:
                raise PulsarSourceError(f"{topic}: no such topic")
        raise NoAnswerError(f"{topic}: the broker answered {response.status_code} {response.reason}")


def _in_utc(moment: str) -> str:
    """A moment as ISO 8601, which each broker writes in its own time zone."""
    return datetime.fromisoformat(moment).astimezone(UTC).isoformat()


def _certificate_problem(error: BaseException | None) -> str | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else None
