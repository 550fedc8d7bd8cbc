from pathlib import Path

import pytest

from pulsar_lakehouse import disk


def test_a_file_is_replaced(tmp_path: Path) -> None:
    for text in (b"old", b"new"):
        disk.write(tmp_path / "folder" / "file", text)
    assert {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()} == {"file": b"new"}


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    disk.write(tmp_path / "file", b"old", replace=False)
    with pytest.raises(FileExistsError):
        disk.write(tmp_path / "file", b"new", replace=False)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        disk.sync_all(tmp_path / "gone")


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        disk.write(tmp_path / "file" / "more", b"one", replace=False)
