"""Pulsar's admin API: one call, and the questions that the source asks by it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import requests

from .credentials import refused, token_of
from .options import Cluster, MissingError, NoAnswerError, PulsarSourceError
from .positions import BEGINNING, Ledger, Position, spans_between
from .sessions import Session, tls_problem, what_a_server_refuses

NOTHING = "a call without a token"
NO_TRANSACTIONS = "NoSnapshot"
"""The state of a partition that never had a transaction."""

LOADING = ("None", "Initializing")
"""Its states just after a broker has begun to serve it."""

HTTP_1_1 = 11

BUSY_PAUSES = (0.1,) * 300
"""Pauses, in seconds, while somebody else creates the same subscription, or while a partition is loaded."""


@dataclass(frozen=True, kw_only=True)
class EntryMetadata:
    messages: int
    """The number of messages in the entry."""
    chunk: int
    """The index of this chunk in its large message, from 0. The last chunk stands for the message."""
    chunks: int
    uuid: str | None
    """Identifies the large message that a chunk belongs to."""
    is_hidden: bool
    """Whether readers never get the entry: a marker of the broker, or a message of an aborted transaction."""

    sealed: tuple[Mapping[str, str], bytes] | None
    """What the broker says of an encrypted entry, and its payload; None if it is not encrypted."""

    @property
    def is_message(self) -> bool:
        return not self.is_hidden and self.chunk == self.chunks - 1


class Held(NamedTuple):
    """What the broker holds of a partition."""

    ledgers: list[Ledger]
    """The ledgers with readable entries, oldest first."""
    cursors: Mapping[str, Any]
    """Cursors as the admin API returns them, by subscription."""
    last: Position
    """The last entry that was ever confirmed, even if it was deleted since."""
    first: int
    """The oldest ledger that still exists. It may be empty."""
    created: str | None = None
    """When the partition was created; a recreated one has another time. None if it is unknown or was not asked for."""
    compacted: Ledger | None = None
    """The broker's own ledger with the last message of each key, as of the last compaction."""

    def cursor(self, subscription: str | None) -> Position | None:
        """The position up to which a subscription has acknowledged everything; None if it does not exist."""
        found = self.cursors.get(subscription) if subscription else None
        return Position.parse(found["markDeletePosition"]) if found else None


class OpenTransaction(NamedTuple):
    id: str
    """As Pulsar writes it, such as `(0,3)`."""
    since: datetime
    """When its first message in the partition was published."""


_ANSWERED: dict[str, str] = {}
"""By admin URL of a cluster: the URL of the broker that answered last, which is asked first."""


class Admin:
    def __init__(self, cluster: Cluster, *, timeout: tuple[float, float] = (10, 60)) -> None:
        """The `timeout` of each call is in seconds: to connect, and to wait for the answer."""
        self._cluster, self._timeout = cluster, timeout
        self._session = Session(lambda: token_of(cluster))
        if cluster.tls_certificate and cluster.tls_key:
            self._session.cert = (cluster.tls_certificate, cluster.tls_key)

    def close(self) -> None:
        self._session.close()

    def answer(
        self, method: str, path: str, json: object = None, *, stream: bool = False, version: int = 2
    ) -> requests.Response:
        """The answer to a call of `path`, below `/admin/v2/`, whatever its status: of the first broker that gives one.

        Raises NoAnswerError if none does. Raises PulsarSourceError if TLS keeps us from one of them for good, if there
        is no token to send, or if a file is missing.
        """
        last = _ANSWERED.get(self._cluster.admin_url)
        for url in sorted(self._cluster.admin_urls, key=lambda each: each != last):
            try:
                response = self._session.request(
                    method,
                    f"{url}/admin/v{version}/{path}",
                    json=json,
                    timeout=self._timeout,
                    verify=self._cluster.tls_trust_certs or True,  # which REQUESTS_CA_BUNDLE does not override
                    stream=stream,
                )
                _refuse_others(response)
            except requests.RequestException as error:
                problem = tls_problem(error, self._cluster)
                if not problem and isinstance(error, requests.exceptions.ConnectionError) and url.startswith("https:"):
                    problem = what_a_server_refuses(url, self._cluster)
                if problem:
                    raise PulsarSourceError(f"{url}: {problem}") from error
                failure = error
            except OSError as error:  # of requests, whose text has the path
                raise PulsarSourceError(str(error)) from error
            else:
                _ANSWERED[self._cluster.admin_url] = url
                return response
        why = type(failure).__name__
        raise NoAnswerError(f"{self._cluster.admin_url}: no answer from the broker: {why}") from failure

    def partitions(self, topic: str) -> list[str]:
        """The full names of a topic's partitions; the topic itself if it is not partitioned."""
        count = self._call("GET", topic, "/partitions").json()["partitions"]
        if count == 0:
            self._call("GET", topic, "/internalStats")  # raises if there is no such topic
            return [topic]
        return [f"{topic}-partition-{index}" for index in range(count)]

    def ledgers(self, partition: str) -> Held:
        """What the broker holds of a partition. Raises MissingError if there is no such partition."""
        stats = self._call("GET", partition, "/internalStats").json()
        last = Position.parse(stats["lastConfirmedEntry"])
        ledgers = []
        for ledger in stats["ledgers"]:
            id, entries, size = ledger["ledgerId"], ledger["entries"], ledger["size"]
            if id == last.ledger:  # the figures of the open ledger lag behind, so count what is confirmed
                entries, size = last.entry + 1, max(size, stats["currentLedgerSize"])
            if id <= last.ledger and entries > 0:
                ledgers.append(Ledger(id, entries, max(size, entries)))
        first = min((ledger["ledgerId"] for ledger in stats["ledgers"]), default=last.ledger + 1)
        kept = stats.get("compactedLedger", {})
        compacted = Ledger(kept["ledgerId"], kept["entries"], kept["size"]) if kept.get("entries", 0) > 0 else None
        return Held(ledgers, stats["cursors"], last, first, compacted=compacted)

    def dated_ledgers(self, partition: str) -> Held:
        """What the broker holds of a partition, with its creation time, which needs a second call.

        Raises MissingError if there is no such partition.
        """
        held = self.ledgers(partition)
        created = self._call("GET", partition, "/internal-info").json().get("creationDate")
        if created:  # each broker writes it in its own time zone
            created = datetime.fromisoformat(created).astimezone(UTC).isoformat()
        return held._replace(created=created)

    def entry(self, partition: str, position: Position) -> EntryMetadata | None:
        """The metadata of an entry; None if the broker has deleted the entry."""
        path = f"/ledger/{position.ledger}/entry/{position.entry}"
        with self._call("GET", partition, path, accept=(404,), stream=True) as response:
            headers = response.headers  # of a payload that is seldom fetched
            try:
                sealed = (headers, response.content) if headers.get("X-Pulsar-Is-Encrypted") == "true" else None
            except requests.RequestException as error:
                raise NoAnswerError(f"{response.url}: the answer is cut off: {type(error).__name__}") from error
        if response.status_code == 404:
            return None
        return EntryMetadata(
            messages=int(headers.get("X-Pulsar-num-batch-message", 1)),
            chunk=int(headers.get("X-Pulsar-chunk-id", 0)),
            chunks=int(headers.get("X-Pulsar-num-chunks-from-msg", 1)),
            uuid=headers.get("X-Pulsar-uuid"),
            is_hidden="X-Pulsar-marker-type" in headers or headers.get("X-Pulsar-txn-aborted") == "true",
            sealed=sealed,
        )

    def readable_end(self, partition: str) -> Position | None:
        """The last entry before the oldest open transaction, up to which readers get messages.

        None if the partition never had a transaction. Raises NoAnswerError if the broker does not know it yet.
        """
        path = quote(partition.partition("://")[2])
        for pause in (*BUSY_PAUSES, None):
            found = self.answer("GET", f"transactions/transactionBufferStats/{path}", version=3)
            stats = found.json() if found.ok else {"state": NO_TRANSACTIONS}  # the brokers have none
            if stats["state"] not in LOADING or pause is None:
                break
            time.sleep(pause)
        if stats["state"] in LOADING:
            raise NoAnswerError(f"{partition}: the broker is still reading which transactions were aborted")
        return None if stats["state"] == NO_TRANSACTIONS else Position.parse(stats["maxReadPosition"])

    def open_transaction(self, partition: str) -> OpenTransaction | None:
        """The oldest open transaction of a partition, if it holds back messages."""
        end = self.readable_end(partition)
        behind = spans_between(self.ledgers(partition).ledgers, end) if end else []
        if not behind:
            return None
        path = f"/ledger/{behind[0].ledger}/entry/{behind[0].first}"
        with self._call("GET", partition, path, accept=(404,), stream=True) as response:
            headers = response.headers
        if "X-Pulsar-txnid-least-bits" not in headers:  # it has just ended
            return None
        id = f"({headers['X-Pulsar-txnid-most-bits']},{headers['X-Pulsar-txnid-least-bits']})"
        return OpenTransaction(id, datetime.fromisoformat(headers["X-Pulsar-publish-time"]))

    def position_before(self, partition: str, publish_time: int) -> Position:
        """The last entry published before `publish_time`, in epoch milliseconds."""
        found = self._call("GET", partition, f"/messageid/{publish_time}").json()
        return Position(found["ledgerId"], found["entryId"] - 1)

    def ensure_subscription(self, partition: str, subscription: str) -> None:
        """Create a durable subscription at the earliest message if it does not exist.

        Raises NoAnswerError if the broker does not create it.
        """
        body = {"ledgerId": BEGINNING.ledger, "entryId": BEGINNING.entry, "partitionIndex": -1}
        path = f"/subscription/{quote(subscription, safe='')}"
        for pause in (*BUSY_PAUSES, None):
            answer = self._call("PUT", partition, path, body, accept=(409, 412))
            if answer.status_code != 412:
                return
            # The broker answers Busy while another stream, or the broker for a new partition, creates the subscription.
            if pause is None or "Busy" not in f"{answer.reason} {answer.text}":
                raise NoAnswerError(f"{partition}: the broker answered 412 {answer.reason}")
            time.sleep(pause)

    def acknowledge(self, partition: str, subscription: str, position: Position) -> None:
        """Acknowledge everything up to `position`, included. Raises NoAnswerError if the subscription is gone."""
        body = {"ledgerId": position.ledger, "entryId": position.entry, "partitionIndex": -1, "excluded": True}
        path = f"/subscription/{quote(subscription, safe='')}/resetcursor"
        if self._call("POST", partition, path, body, accept=(404,)).status_code == 404:
            raise NoAnswerError(f"{partition}: the subscription {subscription} no longer exists")

    def _call(
        self,
        method: str,
        topic: str,
        path: str,
        json: object = None,
        *,
        accept: tuple[int, ...] = (),
        stream: bool = False,
    ) -> requests.Response:
        response = self.answer(method, f"{quote(topic.replace('://', '/'))}{path}", json, stream=stream)
        if response.ok or response.status_code in accept:
            return response
        match response.status_code:
            case 401 | 403:
                raise PulsarSourceError(f"{topic}: the broker refused {refused(self._cluster) or NOTHING}")
            case 404:
                raise MissingError(f"{topic}: no such topic")
        raise NoAnswerError(f"{topic}: the broker answered {response.status_code} {response.reason}")


def _refuse_others(response: requests.Response) -> None:
    """Raises ConnectionError if no broker has answered, or not in full.

    Where a connection ends within the headers, Python takes that for their end.
    """
    if not response.ok:
        return
    headers = response.headers
    is_cut = not {"Content-Length", "Transfer-Encoding"} & headers.keys() and response.status_code != 204
    if response.raw.version == HTTP_1_1 and is_cut:
        raise requests.ConnectionError("the answer is cut off")
    if "html" in headers.get("Content-Type", ""):  # as of what wants us to log in to a network first
        raise requests.exceptions.InvalidJSONError("the answer is a web page")
