import os
from pathlib import Path

import pytest

from pulsar_lakehouse.jvm import class_archives
from pulsar_lakehouse.jvm.class_archives import archive_options, settle

NEVER = 2**31 - 1
"""No process has this pid."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archives, "FOLDER", tmp_path)
    return tmp_path


def written(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def kept_by_a_jvm() -> str:
    """Create a draft of an archive, as a JVM with the options leaves it; returns its name."""
    option, *_ = archive_options("spark", ["4.2.0"], keep=True)
    draft = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    draft.touch()
    return draft.name


def test_what_a_first_jvm_has_kept_is_given_to_the_next(folder: Path) -> None:
    draft = kept_by_a_jvm()
    settle("spark", keep=True)
    archive = draft.replace(f".{os.getpid()}", ".jsa")
    assert written(folder) == [archive]
    assert archive_options("spark", ["4.2.0"], keep=True)[0] == f"-XX:SharedArchiveFile={folder / archive}"


def test_who_shares_the_environment_shares_what_was_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archives, "FOLDER", folder / "share")
    mask = os.umask(0o077)
    try:
        draft = folder / "share" / kept_by_a_jvm()
        settle("spark", keep=True)
    finally:
        os.umask(mask)
    modes = [path.stat().st_mode & 0o777 for path in (draft.parent, draft.with_suffix(".jsa"))]
    assert modes == [0o755, 0o644]


def test_another_version_keeps_its_own_and_the_old_one_goes(folder: Path) -> None:
    for other in ("spark-0123456789ab.jsa", "broker-0123456789ab.jsa"):
        (folder / other).touch()
    draft = kept_by_a_jvm()
    settle("spark", keep=True)
    assert written(folder) == ["broker-0123456789ab.jsa", draft.replace(f".{os.getpid()}", ".jsa")]


def test_what_is_not_to_be_kept_is_removed(folder: Path) -> None:
    kept_by_a_jvm()
    settle("spark", keep=False)
    assert written(folder) == []


def test_drafts_of_killed_processes_are_removed(folder: Path) -> None:
    for pid in (NEVER, os.getpid()):
        (folder / f"spark-0123456789ab.{pid}").touch()
    archive_options("spark", [], keep=True)
    assert written(folder) == [f"spark-0123456789ab.{os.getpid()}"]
