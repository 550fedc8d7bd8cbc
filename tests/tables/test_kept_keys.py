"""Files are found by the keys that are kept of them."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.damage import DamagedError
from pulsar_lakehouse.tables import kept_keys
from pulsar_lakehouse.tables.kept_keys import FILE_BYTES, TEXT_BYTES, KeptKeys
from pulsar_lakehouse.tables.stored import files_of


def table_of(path: Path, *files: dict[str, list[object]]) -> DeltaTable:
    """A table with a file for each of `files`, which have an `id` and a `name`."""
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    for columns in files:
        write_deltalake(str(path), pa.table(columns, schema), mode="append")
    return DeltaTable(str(path))


def found(kept: KeptKeys, table: DeltaTable, keys: dict[str, list[object]]) -> list[list[object]] | None:
    """The ids of each file that the keys may be in, in order."""
    schema = pa.schema({name: pa.int64() if name == "id" else pa.string() for name in keys})
    files = kept.files_with(table, files_of(table), pa.table(keys, schema))
    if files is None:
        return None
    dataset = table.to_pyarrow_dataset()
    ids = {Path(each.path).name: each.to_table()["id"].to_pylist() for each in dataset.get_fragments()}
    return sorted(ids[Path(path).name] for path in files["path"].to_pylist())


FILES: tuple[dict[str, list[object]], ...] = (
    {"id": [1, 9], "name": ["a", "b"]},
    {"id": [2, None], "name": ["a", "a"]},
    {"id": [3], "name": ["c"]},
)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"id": [5, 6]}, []),
        ({"id": [3, 1]}, [[1, 9], [3]]),
        ({"id": [None]}, [[2, None]]),
        ({"name": ["a"]}, [[1, 9], [2, None]]),
        ({"id": [9, 3], "name": ["b", "x"]}, [[1, 9]]),
    ],
)
def test_files_that_have_one_of_the_keys(tmp_path: Path, keys: dict[str, list[object]], expected: list[object]) -> None:
    assert found(KeptKeys(), table_of(tmp_path, *FILES), keys) == expected


def test_a_table_without_files(tmp_path: Path) -> None:
    table = table_of(tmp_path, *FILES)
    table.delete()
    assert found(KeptKeys(), table, {"id": [1]}) == []


def test_only_new_files_are_read(tmp_path: Path) -> None:
    kept, first = KeptKeys(), table_of(tmp_path, *FILES)
    assert found(kept, first, {"id": [1]}) == [[1, 9]]
    for path in tmp_path.glob("*.parquet"):
        path.write_bytes(b"")
    second = table_of(tmp_path, {"id": [7], "name": ["d"]})
    assert kept.files_with(second, files_of(second), pa.table({"id": [4]})) == files_of(second).slice(0, 0)
    with pytest.raises(DamagedError, match="0 bytes of"):
        KeptKeys().files_with(second, files_of(second), pa.table({"id": [4]}))


def test_a_table_in_partitions_to_which_a_column_was_added(tmp_path: Path) -> None:
    """A file has the values of its partition in the log only, and NULL in columns that are newer."""
    path = str(tmp_path)
    write_deltalake(path, pa.table({"day": pa.array([1, None]), "id": [1, 2]}), partition_by=["day"])
    newer = pa.table({"day": [1], "id": [3], "name": ["c"]})
    write_deltalake(path, newer, mode="append", schema_mode="merge")
    table = DeltaTable(path)
    assert found(KeptKeys(), table, {"name": ["c"]}) == [[3]]
    assert found(KeptKeys(), table, {"name": [None]}) == [[1], [2]]
    days = pa.table({"day": pa.array([None], pa.int64())})
    files = KeptKeys().files_with(table, files_of(table), days)
    assert files is not None
    assert files["partition.day"].to_pylist() == [None]


@pytest.mark.parametrize(("bytes_of_a_key", "expected"), [(16, [[3]]), (17, None)])
def test_keys_that_take_too_much_memory_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_of_a_key: int, expected: object
) -> None:
    monkeypatch.setattr(kept_keys, "_bytes_of", lambda _: bytes_of_a_key)
    assert found(KeptKeys(room=5 * 16), table_of(tmp_path, *FILES), {"id": [3]}) == expected


def test_texts_that_are_longer_than_they_were_taken_for(tmp_path: Path) -> None:
    table, kept = table_of(tmp_path, {"id": [1, 2], "name": ["a" * 100, "b" * 100]}), KeptKeys(room=2 * TEXT_BYTES)
    assert found(kept, table, {"name": ["c"]}) is None
    for path in tmp_path.glob("*.parquet"):
        path.write_bytes(b"")
    assert kept.files_with(table, files_of(table), pa.table({"name": ["c"]})) is None


def test_files_without_a_number_of_rows_are_not_looked_into(tmp_path: Path) -> None:
    table = table_of(tmp_path, *FILES)
    files = files_of(table).drop_columns("num_records").append_column("num_records", pa.nulls(3, pa.int64()))
    assert KeptKeys().files_with(table, files, pa.table({"id": [1]})) is None


def test_keys_make_room_for_those_of_other_tables(tmp_path: Path) -> None:
    kept = KeptKeys(room=3 * FILE_BYTES + 5 * 16)
    one, other = table_of(tmp_path / "one", *FILES), table_of(tmp_path / "other", *FILES)
    assert found(kept, one, {"id": [3]}) == found(kept, other, {"id": [3]}) == [[3]]
    for path in (tmp_path / "one").glob("*.parquet"):
        path.write_bytes(b"")
    with pytest.raises(DamagedError, match="0 bytes of"):
        kept.files_with(one, files_of(one), pa.table({"id": [3]}))
