"""Reads the wire format of Protobuf, in which Pulsar writes what it says of messages."""

from collections.abc import Iterator


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and value of each field: an int for a varint, else bytes. Raises IndexError if `data` is cut off."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value: int | bytes
                value, at = _varint(data, at)
            case 1:
                value, at = data[at : at + 8], at + 8
            case 5:
                value, at = data[at : at + 4], at + 4
            case _:
                size, at = _varint(data, at)
                value, at = data[at : at + size], at + size
        if at > len(data):
            raise IndexError("a field is cut off")
        yield tag >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint, and where the next field begins."""
    value, shift = 0, 0
    while data[at] & 0x80:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1
