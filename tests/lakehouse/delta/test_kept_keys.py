"""Files are found by the keys that are kept of them."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.delta.datasets import files_of
from lakehouse.delta.kept_keys import KeptKeys


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
    return sorted(ids[path] for path in files["path"].to_pylist())


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
    with pytest.raises(OSError, match="only 0 bytes long"):
        KeptKeys().files_with(second, files_of(second), pa.table({"id": [4]}))


def test_keys_that_take_too_much_memory_are_not_kept(tmp_path: Path) -> None:
    table = table_of(tmp_path, *FILES)
    assert found(KeptKeys(room=5 * 8), table, {"id": [3]}) == [[3]]
    assert found(KeptKeys(room=5 * 8 - 1), table, {"id": [3]}) is None


def test_keys_make_room_for_those_of_other_tables(tmp_path: Path) -> None:
    kept, one, other = KeptKeys(room=5 * 8), table_of(tmp_path / "one", *FILES), table_of(tmp_path / "other", *FILES)
    assert found(kept, one, {"id": [3]}) == found(kept, other, {"id": [3]}) == [[3]]
    for path in (tmp_path / "one").glob("*.parquet"):
        path.write_bytes(b"")
    with pytest.raises(OSError, match="only 0 bytes long"):
        found(kept, one, {"id": [3]})
