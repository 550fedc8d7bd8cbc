"""How far streams have read tables, as their checkpoints say."""

import json

import pytest

from pulsar_lakehouse.checkpoints.offsets import table_offsets


@pytest.mark.parametrize(
    ("offset", "all_read"),
    [
        ({"reservoirVersion": 3, "index": -1}, 2),
        ({"reservoirVersion": 3, "index": 7}, 2),  # perhaps only some files of version 3
        ({"reservoirVersion": 3, "index": 7, "isStartingVersion": True}, -1),
    ],
)
def test_what_was_surely_read_to_its_end(offset: dict[str, object], all_read: int) -> None:
    [found] = table_offsets(f"v1\n{{}}\n{json.dumps({'reservoirId': 'a', **offset})}")
    assert found.all_read == all_read
