"""A table that Debezium replicates: any order, any batches and any repeats of its changes give the same tables."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoding import MALFORMED
from pulsar_lakehouse.contracts.envelopes import Debezium
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.contracts.types import KeyEncoding
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.silver.merge import create_tables, merge_batch
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import bronze_row, land_literally, own_home, read
from tests.messages import message
from tests.oracle import Message
from tests.searching import few

Row = dict[str, Any]
UNAVAILABLE = "__debezium_unavailable_value"
CITIES = Entity(
    topic=Topic(
        "cities",
        "id INT NOT NULL, name STRING NOT NULL, bio STRING, __source_lsn BIGINT, __source_ts_ms TIMESTAMP_MILLIS",
        key_encoding=KeyEncoding.JSON,
        envelope=Debezium(),
        changelog=True,
    ),
    key="id",
    columns="id, name, upper(bio) AS bio, __source_lsn AS lsn",
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
)


def time(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def change(op: str, lsn: int, *, id: int = 1, name: str = "Ulm", bio: Any = None, second: int | None = None) -> Message:
    """A change at the time of its position in the log, in seconds, if no other is given. It lands at that place."""
    key, row = f'{{"id": {id}}}', {"id": id, "name": name, "bio": bio}
    rows: dict[str, Row] = {
        "d": {"before": {"id": id, "name": ""}, "after": None},
        "t": {"before": None, "after": None},
    }
    source = {"lsn": lsn, "ts_ms": 1000 * (lsn if second is None else second)}
    payload = {"op": op, "source": source, **rows.get(op, {"before": None, "after": row})}
    return message("cities", payload, key=None if op == "t" else key, when=None, place=lsn)


def tombstone(lsn: int, *, id: int = 1) -> Message:
    """What Debezium sends after a delete, for the compaction of topics."""
    return message("cities", None, key=f'{{"id": {id}}}', when=None, place=10_000 + lsn)


def project(lake: Lake, folder: Path, entity: Entity = CITIES) -> Lake:
    own = Lake(lake.spark, own_home(lake.settings, folder))
    create_tables(own, entity)
    return own


def merge(lake: Lake, *batches: Sequence[Message]) -> None:
    for batch in filter(None, batches):
        rows = [bronze_row(each) for each in batch]
        merge_batch(lake, CITIES, lake.spark.createDataFrame(rows, bronze_table(CITIES.topic).ddl))


def held(lake: Lake) -> list[Row]:
    """The latest state: id, name, bio and when it was deleted."""
    rows = read(lake.settings, CITIES.table.name)
    return sorted(({name: row[name] for name in STATE} for row in rows), key=itemgetter("id"))


def held_history(lake: Lake) -> list[Row]:
    rows = read(lake.settings, CITIES.history.name)
    found = ({name: row[name] for name in VERSION} | {"lsn": row["sequence"]["by"]["lsn"]} for row in rows)
    return sorted(found, key=lambda row: (row["lsn"] or -1, row["id"] or 0))


STATE = ("id", "name", "bio", "deleted_at")
VERSION = (*STATE, "valid_from", "valid_until")


def test_a_value_that_was_not_logged_is_the_last_one(lake: Lake, tmp_path: Path) -> None:
    own = project(lake, tmp_path)
    merge(own, [change("u", 3, name="Ulm", bio=UNAVAILABLE)], [change("c", 1, name="Olm", bio="long")])
    assert held(own) == [{"id": 1, "name": "Ulm", "bio": "LONG", "deleted_at": None}]
    merge(own, [change("u", 2, bio=None)])
    assert held(own) == [{"id": 1, "name": "Ulm", "bio": None, "deleted_at": None}]


def test_a_truncation_deletes_what_is_older_whenever_it_arrives(lake: Lake, tmp_path: Path) -> None:
    own = project(lake, tmp_path)
    merge(own, [change("c", 1, id=1), change("c", 5, id=2)], [change("t", 4)], [change("c", 3, id=3)])
    emptied = {"name": None, "bio": None, "deleted_at": time(4)}
    assert held(own) == [
        {"id": 1, **emptied},
        {"id": 2, "name": "Ulm", "bio": None, "deleted_at": None},
        {"id": 3, **emptied},
    ]
    merge(own, [change("u", 6, id=1, bio=UNAVAILABLE)])
    assert held(own)[0] == {"id": 1, "name": "Ulm", "bio": None, "deleted_at": None}


def test_a_truncation_without_a_position_is_malformed(lake: Lake, tmp_path: Path) -> None:
    own, payload = project(lake, tmp_path), {"op": "t", "source": {"ts_ms": 4000}}
    merge(own, [change("c", 1), message("cities", payload, key=None, when=None, place=2)])
    assert [row["reason"] for row in read(own.settings, MALFORMED.name)] == ["a truncation without lsn"]


def test_the_tombstone_after_a_delete_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    own = project(lake, tmp_path)
    merge(own, [change("c", 1), change("d", 2), tombstone(2)], [change("c", 3)], [tombstone(2)])
    assert held(own) == [{"id": 1, "name": "Ulm", "bio": None, "deleted_at": None}]
    valid = [row for row in held_history(own) if row["valid_from"] != row["valid_until"]]
    assert [(row["valid_from"], row["valid_until"], row["deleted_at"]) for row in valid] == [
        (time(1), time(2), None),
        (time(2), time(3), time(2)),
        (time(3), None, None),
    ]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("ccuuuuddt"),
        st.integers(1, 6),
        st.sampled_from(["Ulm", "Rom"]),
        st.sampled_from(["a", "b", None, UNAVAILABLE, UNAVAILABLE]),
        st.integers(0, 5),
    ),
    min_size=30,
    max_size=60,
)


def sent(drawn: Iterable[tuple[str, int, str, str | None, int]]) -> list[Message]:
    return [
        change(op, lsn, id=id, name=name, bio=bio, second=lsn // 4 + second)
        for lsn, (op, id, name, bio, second) in enumerate(drawn, 1)
    ]


def expected(drawn: Sequence[tuple[str, int, str, str | None, int]]) -> tuple[list[Row], list[Row]]:
    """The latest state and the history, one change after the other in the order of the log."""
    state: dict[int, Row] = {}
    history: list[Row] = []
    for lsn, (op, id, name, bio, second) in enumerate(drawn, 1):
        at = time(lsn // 4 + second)
        row: Row = {"id": id, "name": name, "bio": bio and bio.upper(), "deleted_at": None}
        if op in "dt":
            row |= {"id": None if op == "t" else id, "name": None, "bio": None, "deleted_at": at}
        elif bio == UNAVAILABLE:
            row["bio"] = state[id]["bio"] if id in state else None
        history.append({**row, "lsn": lsn, "valid_from": at, "valid_until": at if op == "t" else None})
        for former in history[:-1] if op == "t" else [each for each in history[:-1] if each["id"] == id]:
            if former["id"] is not None:
                until = min(filter(None, (former["valid_until"], max(at, former["valid_from"]))))
                former["valid_until"] = until
        if op == "t":
            for each in state.values():
                if each["deleted_at"] is None:
                    each |= {"name": None, "bio": None, "deleted_at": max(at, each["since"])}
        else:
            state[id] = {**row, "since": at}
    return [{name: state[id][name] for name in STATE} for id in sorted(state)], history


@few(2)
@given(drawn=CHANGES, random=st.randoms(use_true_random=True))
def test_any_order_any_batches_and_any_repeats_give_the_same(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory, drawn: list[Any], random: Random
) -> None:
    own = project(lake, tmp_path_factory.mktemp("cities"))
    changes = sent(drawn)
    arrival = random.sample(changes, len(changes))
    cut = random.randint(0, len(arrival))
    land_literally(own, changes, [CITIES.topic])
    merge(own, arrival[:cut], arrival[cut:], random.sample(arrival, cut))
    state, history = expected(drawn)
    assert held(own) == state
    assert held_history(own) == history
    assert read(own.settings, MALFORMED.name) == []
    assert reconcile_entity(own, CITIES).holds
