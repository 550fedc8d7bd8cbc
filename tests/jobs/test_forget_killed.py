"""`lakehouse forget` as a user starts it, killed at moments spread over its work: started again, it completes."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.bronze.erasures import ERASURES
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.jobs.test_crashes import LAKEHOUSE, commit, ended, is_free, start, wait_until
from tests.jobs.test_forget import HIS, OTHERS, ZAPHOD, check, holding, send
from tests.lake import environment, messages, own_home, own_topics, read
from tests.shop import WRITTEN

COMMANDS = (
    ("run",),
    ("quarantine", "discard", "--key", "8", "--note", "Zaphod asks"),
    ("enrich",),
    ("validate",),
    ("refresh",),
    ("snapshot", "create", "before"),
    ("backfill", "--because", f"users:{ZAPHOD}", "--note", "Zaphod asks"),
)
FORGET = ("forget", f"users:{ZAPHOD}", "--approve", "--now")
PATIENCE = 1200
"""Seconds that an erasure may take on a machine that is busy with other tests."""
SENT = [each for each in (*HIS, *OTHERS) if each.key]


class Whole(NamedTuple):
    """An erasure that nobody killed."""

    before: Settings
    seconds: float
    """From the record of the request to the end."""
    rows: dict[str, int]


def told(project: Settings) -> dict[str, Any]:
    [path] = (project.home / "erasures").iterdir()
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def copy_of(project: Settings, home: Path) -> Settings:
    shutil.copytree(project.home, home, dirs_exist_ok=True)
    return own_home(project, home)


@pytest.fixture(scope="module")
def whole(settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    project = own_topics(settings, endpoint, tmp_path_factory.mktemp("forget"))
    send(project, endpoint, SENT)
    for words in COMMANDS:
        given = {**os.environ, **environment(project)}
        done = subprocess.run([LAKEHOUSE, *words], env=given, cwd=project.home, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert {name.split("/")[0] for name in holding(project.home)} == {"leases", "warehouse"}
    erased = copy_of(project, tmp_path_factory.mktemp("whole"))
    with ended(start(erased, *FORGET)) as process:
        wait_until(commit(erased, ERASURES.name, 1).exists)
        began = time.monotonic()
        assert process.wait(PATIENCE) == 0
        seconds = time.monotonic() - began
    assert list(holding(erased.home)) == []
    return Whole(project, seconds, told(erased)["rows"])


@pytest.mark.long
@pytest.mark.parametrize("part", [0, 0.2, 0.4, 0.6, 0.8, 0.95])
def test_an_erasure_that_is_killed_is_completed_by_the_next(
    spark: SparkSession, whole: Whole, tmp_path: Path, part: float
) -> None:
    project = copy_of(whole.before, tmp_path)
    with ended(start(project, *FORGET)) as process:
        wait_until(commit(project, ERASURES.name, 1).exists)
        time.sleep(part * whole.seconds)
        process.kill()
        assert process.wait() in (-9, 0)  # near the end, a faster one than the whole may be done
    wait_until(lambda: is_free(project, WRITTEN))
    with ended(start(project, *FORGET)) as process:
        assert process.wait(PATIENCE) == 0, (project.home / "forget.log").read_text()
    assert list(holding(project.home)) == []
    assert (told(project)["messages"], told(project)["rows"]) == (10, whole.rows)
    assert sorted(event["event"] for event in read(project, ERASURES.name)) == ["done", "requested"]
    kept = messages(project)
    assert sorted(each.payload or b"" for each in kept) == sorted(each.payload or b"" for each in OTHERS if each.key)
    check(Lake(spark, project), kept)
