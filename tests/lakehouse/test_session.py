"""Kept classes of the JVM."""

import os
from pathlib import Path

import pytest

from lakehouse import session

NEVER = 2**31 - 1
"""No process has this number."""


def test_drafts_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ARCHIVES", tmp_path)
    for pid in (NEVER, os.getpid()):
        (tmp_path / f"spark-0123456789ab.{pid}").touch()
    session._class_archive([], keep=True)
    assert [each.name for each in tmp_path.iterdir()] == [f"spark-0123456789ab.{os.getpid()}"]
