import os
from pathlib import Path

from lakehouse.class_archives import archive_options, settle

NEVER = 2**31 - 1
"""No process has this number."""


def written(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def kept_by_a_jvm(folder: Path) -> str:
    """A draft as a JVM leaves it that was given the options; returns its name."""
    option, *_ = archive_options(folder, "spark", ["4.2.0"], keep=True)
    draft = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    draft.touch()
    return draft.name


def test_what_a_first_jvm_has_kept_is_given_to_the_next(tmp_path: Path) -> None:
    draft = kept_by_a_jvm(tmp_path)
    settle(tmp_path, "spark", keep=True)
    archive = draft.replace(f".{os.getpid()}", ".jsa")
    assert written(tmp_path) == [archive]
    assert archive_options(tmp_path, "spark", ["4.2.0"], keep=True)[0] == f"-XX:SharedArchiveFile={tmp_path / archive}"


def test_another_version_keeps_its_own_and_the_old_one_goes(tmp_path: Path) -> None:
    for other in ("spark-0123456789ab.jsa", "broker-0123456789ab.jsa"):
        (tmp_path / other).touch()
    draft = kept_by_a_jvm(tmp_path)
    settle(tmp_path, "spark", keep=True)
    assert written(tmp_path) == ["broker-0123456789ab.jsa", draft.replace(f".{os.getpid()}", ".jsa")]


def test_what_is_not_to_be_kept_is_removed(tmp_path: Path) -> None:
    kept_by_a_jvm(tmp_path)
    settle(tmp_path, "spark", keep=False)
    assert written(tmp_path) == []


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    for pid in (NEVER, os.getpid()):
        (tmp_path / f"spark-0123456789ab.{pid}").touch()
    archive_options(tmp_path, "spark", [], keep=True)
    assert written(tmp_path) == [f"spark-0123456789ab.{os.getpid()}"]
