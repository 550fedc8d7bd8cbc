"""Readers beside a writer that is right, and beside those that are not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.progress import wait_until
from pulsar_lakehouse.settings import Settings, load_settings
from tests.chaos.readers import GOLD, NotSoError, Reader, Readers, by_delta_rs, by_query
from tests.oracle import Position

WAITING = "quarantine.waiting_orders"
POSITION = pa.struct([(name, pa.int64()) for name in Position._fields])
SCHEMAS = {
    GOLD: pa.schema({"position": POSITION, "user": pa.struct({"first_name": pa.string()})}),
    WAITING: pa.schema({"position": POSITION, "attempts": pa.int32()}),
}
HELD = "position.entry_id = {}"

Write = Callable[[Settings, int], None]


def add(settings: Settings, name: str, entry: int) -> None:
    state: dict[str, Any] = {"user": {"first_name": "Ada"}} if name == GOLD else {"attempts": 1}
    row = {"position": dict(zip(Position._fields, (0, 1, entry, -1), strict=True)), **state}
    write_deltalake(settings.table_path(name), pa.Table.from_pylist([row], schema=SCHEMAS[name]), mode="append")


def remove(settings: Settings, name: str, entry: int) -> None:
    DeltaTable(settings.table_path(name)).delete(HELD.format(entry))


def move(settings: Settings, entry: int) -> None:
    """As the product does: an order waits, and moves to gold; an older one waits again."""
    add(settings, WAITING, entry)
    add(settings, GOLD, entry)
    remove(settings, WAITING, entry)
    add(settings, WAITING, entry - 1)
    remove(settings, GOLD, entry - 1)


def move_away_first(settings: Settings, entry: int) -> None:
    add(settings, WAITING, entry)
    remove(settings, WAITING, entry)
    add(settings, GOLD, entry)


def read_beside(settings: Settings, write: Write, *, times: int) -> None:
    for name, schema in SCHEMAS.items():
        DeltaTable.create(settings.table_path(name), schema)
    seen = [
        Reader("delta-rs", by_delta_rs(settings), pause=0),
        Reader("lakehouse sql", by_query(settings), pause=0, is_of_a_moment=True),
    ]
    readers = Readers(settings, seen)
    readers.start()
    try:
        for entry in range(1, times + 1):
            write(settings, entry)
        wait_until(lambda: all(each.readings > 2 for each in seen), "Reading", 60)
    finally:
        readers.stop()
    readers.judge()


def test_what_readers_see_was_so_at_some_moment_and_no_order_is_ever_in_no_table(tmp_path: Path) -> None:
    read_beside(load_settings(home=tmp_path), move, times=5)


def test_an_order_that_is_in_no_table_for_a_moment_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(NotSoError, match=r"^1 orders were in no table after quarantine.waiting_orders 2 "):
        read_beside(load_settings(home=tmp_path), move_away_first, times=1)


def test_a_reader_that_sees_what_was_never_so_or_goes_back_is_noticed(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path)
    DeltaTable.create(settings.table_path(GOLD), SCHEMAS[GOLD])
    liar = Reader("liar", by_delta_rs(settings), pause=60)
    readers = Readers(settings, [liar])
    readers.start()
    readers.stop()
    before = liar.read()
    add(settings, GOLD, 1)
    liar.seen += [liar.read(), before]
    with pytest.raises(NotSoError, match=r"^liar saw gold.enriched_orders as in \[0\] after it had seen a later one$"):
        readers.judge()
    liar.seen.append({GOLD: frozenset()})
    with pytest.raises(NotSoError, match=r"^liar saw gold.enriched_orders as in no version "):
        readers.judge()
