"""Checkpoints that a power cut or a full disk has torn, or that belong to other tables than the current ones."""

import json
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.checkpoints.soundness import create_tables_of, finished_version, sound_checkpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import Table, commit_file
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home

BOATS = Table(name="bronze.boats", columns="id BIGINT")
CARS = Table(name="bronze.cars", columns="id BIGINT")
Tear = Callable[[Path], object]


@pytest.fixture(scope="module")
def project(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Two tables. A stream has read one of them in three batches."""
    own = own_home(lake.settings, tmp_path_factory.mktemp("checkpoints"))
    Lake(lake.spark, own).create(CARS)
    Lake(lake.spark, own).create(BOATS)
    for id in range(3):
        Lake(lake.spark, own).table(BOATS.name).append(lake.spark.range(id, id + 1))
        boats = lake.spark.readStream.format("delta").load(own.table_path(BOATS.name))
        stream = boats.writeStream.foreachBatch(lambda *_: None).trigger(availableNow=True)
        stream.option("checkpointLocation", own.checkpoint_path("boats")).start().awaitTermination()
    return own


@pytest.fixture
def checkpoint(project: Settings, tmp_path: Path) -> Path:
    """A copy of the stream's checkpoint."""
    return Path(shutil.copytree(project.checkpoint_path("boats"), tmp_path / "boats"))


def cut(name: str, length: int) -> Tear:
    """Cut off the end of a file, and remove its checksum, which can be lost at the same time."""

    def write(checkpoint: Path) -> None:
        file = checkpoint / name
        file.with_name(f".{file.name}.crc").unlink()
        file.write_bytes(file.read_bytes()[:length])

    return write


def lose(*names: str) -> Tear:
    def unlink(checkpoint: Path) -> None:
        for name in names:
            for file in checkpoint.glob(name):
                file.unlink()

    return unlink


def use(lake: Lake, checkpoint: Path, reads: list[str]) -> None:
    elsewhere = lake.settings.model_copy(update={"checkpoints": str(checkpoint.parent)})
    assert sound_checkpoint(Lake(lake.spark, elsewhere), checkpoint.name, reads=reads) == str(checkpoint)


@pytest.mark.parametrize(
    "tear",
    [
        pytest.param(lambda checkpoint: None, id="whole"),
        pytest.param(lose("commits/2"), id="killed in the last batch"),
        pytest.param(shutil.rmtree, id="lost"),
        pytest.param(lose("commits/0", "offsets/0"), id="old batches forgotten"),
    ],
)
def test_a_sound_checkpoint_is_kept(
    spark: SparkSession, project: Settings, checkpoint: Path, capsys: pytest.CaptureFixture[str], tear: Tear
) -> None:
    tear(checkpoint)
    before = sorted(checkpoint.rglob("*"))
    use(Lake(spark, project), checkpoint, [BOATS.name])
    assert (sorted(checkpoint.rglob("*")), capsys.readouterr().err) == (before, "")


@pytest.mark.parametrize(
    ("tear", "problem"),
    [
        (cut("metadata", 0), "/metadata: torn"),
        (cut("metadata", 9), "/metadata: torn"),
        (lose("metadata"), "/metadata: lost"),
        (cut("offsets/2", 0), "/offsets/2: torn"),
        (cut("offsets/2", 100), "/offsets/2: torn"),
        (cut("offsets/2", -9), "/offsets/2: torn"),
        (lambda checkpoint: (checkpoint / "offsets" / "2").write_text("v1\n{}\n"), "/offsets/2: torn"),
        # Only its checksum shows that this one is torn.
        (lambda checkpoint: (checkpoint / "offsets" / "2").write_text("v1\n"), "/offsets/2: torn"),
        (cut("offsets/1", 0), "/offsets/1: torn"),
        (lose("offsets/1"), "/offsets/1: lost"),
        (cut("commits/2", 0), "/commits/2: torn"),
        (lambda checkpoint: (checkpoint / "commits" / "2").write_bytes(b"\xff\x00garbage"), "/commits/2: torn"),
        (lose("commits/1", "commits/2"), ": the last batch in offsets is 2, in commits 0"),
        (lose("offsets/2"), ": the last batch in offsets is 1, in commits 2"),
        (lose("offsets/*"), ": the last batch in offsets is -1, in commits 2"),
    ],
)
def test_a_torn_checkpoint_is_removed(
    spark: SparkSession,
    project: Settings,
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    tear: Tear,
    problem: str,
) -> None:
    tear(checkpoint)
    use(Lake(spark, project), checkpoint, [BOATS.name])
    said = f"the checkpoint {checkpoint} was removed, and its stream continues from what the tables hold"
    assert (capsys.readouterr().err, checkpoint.exists()) == (f"{checkpoint}{problem}: {said}\n", False)


def version(number: int) -> Tear:
    """Make the checkpoint say that the stream has read this version of its table."""

    def write(checkpoint: Path) -> None:
        file = checkpoint / "offsets" / "2"
        *lines, offset = file.read_text().splitlines()
        file.with_name(".2.crc").unlink()
        file.write_text("\n".join([*lines, json.dumps({**json.loads(offset), "reservoirVersion": number})]))

    return write


@pytest.mark.parametrize(
    ("reads", "tear", "problem"),
    [
        ([CARS.name], version(4), "bronze.cars is not the table that the stream has read"),
        ([BOATS.name], version(5), "bronze.boats has gone back to an older version"),
        ([BOATS.name, CARS.name], version(4), "the stream had 1 sources, and has 2 now"),
    ],
)
def test_a_checkpoint_of_other_sources_is_removed(
    spark: SparkSession,
    project: Settings,
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
    reads: list[str],
    tear: Tear,
    problem: str,
) -> None:
    tear(checkpoint)
    use(Lake(spark, project), checkpoint, reads)
    assert capsys.readouterr().err.startswith(f"{checkpoint}/offsets/2: {problem}: the checkpoint")
    assert not checkpoint.exists()


def test_changes_that_wait_for_longer_than_maintenance_keeps_them_are_not_read(
    spark: SparkSession, project: Settings, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    version(3)(checkpoint)
    use(Lake(spark, project), checkpoint, [BOATS.name])
    assert capsys.readouterr().err == ""
    commit = Path(project.table_path(BOATS.name), commit_file(3))
    os.utime(commit, ((datetime.now() - timedelta(days=8)).timestamp(),) * 2)
    use(Lake(spark, project), checkpoint, [BOATS.name])
    problem = "changes of bronze.boats were not read for 7 days, and may be gone: the checkpoint"
    assert capsys.readouterr().err.startswith(f"{checkpoint}/offsets/2: {problem}")
    os.utime(commit)


def test_a_table_that_is_younger_than_its_stream_needs_all_that_was_read(
    spark: SparkSession, project: Settings, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No matter who has created the table: another stream that writes it too may have found that it was lost."""
    elsewhere = project.model_copy(update={"checkpoints": str(checkpoint.parent)})
    create_tables_of(Lake(spark, elsewhere), checkpoint.name, [BOATS])
    assert (checkpoint.exists(), capsys.readouterr().err) == (True, "")
    ships = Table(name="bronze.ships", columns="id BIGINT")
    Lake(spark, project).create(ships)
    create_tables_of(Lake(spark, elsewhere), checkpoint.name, [BOATS, ships])
    assert not checkpoint.exists()
    assert capsys.readouterr().err.startswith("bronze.ships: created after the stream had begun: the checkpoint")


def test_how_far_a_stream_is_stays_known_without_its_checkpoint_or_its_note(
    spark: SparkSession, project: Settings, checkpoint: Path
) -> None:
    lake = Lake(spark, project.model_copy(update={"checkpoints": str(checkpoint.parent)}))
    note = checkpoint.parent / ".finished" / "boats"
    for harm in (Path.touch, partial(Path.write_text, data="{"), lambda _: shutil.rmtree(checkpoint)):
        assert finished_version(lake, "boats", reads=BOATS.name) == 4
        harm(note)
    assert finished_version(lake, "boats", reads=BOATS.name) == 4
