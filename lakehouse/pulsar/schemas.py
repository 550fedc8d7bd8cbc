"""Schemas for Pulsar's client, of payloads that are encoded already."""

from _pulsar import SchemaInfo, SchemaType
from pulsar.schema import Schema


class EncodedJson(Schema):  # type: ignore[misc]
    """The registered schema of a topic, for payloads that are encoded already."""

    def __init__(self, record: str, avro: str) -> None:
        self._schema_info = SchemaInfo(SchemaType.JSON, record, avro)

    def encode(self, payload: bytes) -> bytes:
        return payload
