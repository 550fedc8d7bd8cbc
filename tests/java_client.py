"""Sends messages with Pulsar's own Java client, which comes with the embedded broker, as others do."""

import json
import os
import subprocess
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

from pulsar_lakehouse.bronze.pulsar.positions import Position
from pulsar_lakehouse.downloads.artifacts import pulsar_home
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.jvm.scala import compiled
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings

SOURCE = Path(__file__).with_name("java_client.scala")


class Pair(NamedTuple):
    """The value of a message whose schema is KeyValue."""

    key: Any
    value: Any


def schema(type: str, text: str = "", **properties: str) -> dict[str, Any]:
    """A schema by Pulsar's name of its type, such as AVRO, JSON, STRING, INT64, BYTES or PROTOBUF_NATIVE."""
    return {"type": type, "schema": text, "properties": properties}


def key_value(key: Mapping[str, Any], value: Mapping[str, Any], encoding: str) -> dict[str, Any]:
    """The schema of key-value pairs; the encoding is INLINE or SEPARATED."""
    return {"type": "KEY_VALUE", "key": key, "value": value, "encoding": encoding}


def message(
    value: Any,
    *,
    key: str | bytes | None = None,
    properties: Mapping[str, str] | None = None,
    event_time: int | None = None,
) -> dict[str, Any]:
    """A message to send.

    Bytes are sent as they are, and None as a tombstone. Any other value is JSON, which the client writes by the
    schema; a record of AVRO is in Avro's JSON encoding. The event time is in epoch milliseconds.
    """
    given = {"key": key, "properties": properties, "event_time": event_time}
    return {"value": value} | {name: each for name, each in given.items() if each is not None}


class JavaClient:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def send(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        schema: Mapping[str, Any] = schema("BYTES"),
        transaction: str | None = None,
        **producer: Any,
    ) -> list[Position]:
        """Send messages, and return the position of each.

        Options of the producer: `batched` sends all in one entry, `public_keys` are files by the names of keys that
        encrypt the messages, `chunk_bytes` is the size of chunks, and `compression` is a name such as ZSTD.
        """
        command = {"do": "send", "topic": topic, "messages": messages, "schema": schema, "producer": producer}
        if transaction:
            command["transaction"] = transaction
        return self._positions(command)

    def send_committed(self, topic: str, payloads: Iterable[bytes], *, each: int = 1) -> list[Position]:
        """Send payloads in transactions of so many `each`, and commit these. Returns the position of each payload."""
        messages = [message(payload) for payload in payloads]
        command = {"do": "send committed", "topic": topic, "messages": messages, "each": each}
        return self._positions({**command, "schema": schema("BYTES")})

    def begin(self, *, seconds: int = 600) -> str:
        """Begin a transaction, which the broker aborts after so many seconds. Returns its id."""
        return str(self._call({"do": "begin", "seconds": seconds})["transaction"])

    def commit(self, transaction: str) -> None:
        self._call({"do": "commit", "transaction": transaction})

    def abort(self, transaction: str) -> None:
        self._call({"do": "abort", "transaction": transaction})

    def _positions(self, command: Mapping[str, Any]) -> list[Position]:
        ids = [id.split(":") for id in self._call(command)["ids"]]
        return [Position(int(id[0]), int(id[1])) for id in ids]

    def _call(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(_plain(command)) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


@contextmanager
def java_client(endpoint: Endpoint, settings: Settings, *, transactions: bool = False) -> Iterator[JavaClient]:
    """A client for the block. With `transactions`, the broker must have them on."""
    libraries = sorted((pulsar_home(settings.cache) / "lib").glob("*.jar"))
    jar = compiled(SOURCE, settings.cache, uses=libraries)
    scala = next((Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"))
    command: list[str | Path] = [java_home() / "bin" / "java", "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command += ["-XX:+UseSerialGC", "-cp", os.pathsep.join(map(str, [jar, scala, *libraries]))]
    command += ["lakehouse.tests.JavaClient", endpoint.service_url, str(transactions).lower()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        yield JavaClient(process)
        process.stdin.close()
        process.wait(30)


def _plain(value: Any) -> Any:
    """The same in JSON: bytes as an object with their base64 text, and a pair as one with its parts."""
    match value:
        case bytes():
            return {"base64": b64encode(value).decode()}
        case Pair():
            return {"pair": [_plain(each) for each in value]}
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value
