"""Schemas for Pulsar's client, for payloads that are already encoded."""

from _pulsar import SchemaInfo, SchemaType
from pulsar.schema import Schema


class EncodedJson(Schema):  # type: ignore[misc]
    """A topic's registered JSON schema, for payloads that are already encoded. `avro` is an Avro record, as JSON."""

    def __init__(self, record: str, avro: str) -> None:
        self._schema_info = SchemaInfo(SchemaType.JSON, record, avro)

    def encode(self, payload: bytes) -> bytes:
        return payload
