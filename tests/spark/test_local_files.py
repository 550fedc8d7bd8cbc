"""Local files as Spark creates them: as with Hadoop's and Hive's own classes, but without a process for each file."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.spark.files import Files
from tests.failing_writes.shim import NO_COMPILER, Failure, Shim


@pytest.fixture
def hadoop(spark: SparkSession) -> Any:
    assert spark._jvm is not None
    return spark._jvm.org.apache.hadoop.fs


@pytest.fixture
def files(spark: SparkSession, hadoop: Any) -> Any:
    found = hadoop.Path("file:/").getFileSystem(spark._jsc.hadoopConfiguration())
    assert found.getClass().getName() == "lakehouse.LocalFiles"
    return found


@pytest.fixture
def context(spark: SparkSession, hadoop: Any) -> Any:
    """The file context, with which Delta and checkpoints commit."""
    found = hadoop.FileContext.getFileContext(spark._jsc.hadoopConfiguration())
    assert found.getDefaultFileSystem().getClass().getName() == "lakehouse.LocalContext"
    return found


def mode(path: Path) -> str:
    return stat.filemode(path.stat().st_mode)


@pytest.fixture
def rename(spark: SparkSession, hadoop: Any, context: Any) -> Callable[..., None]:
    def rename(old: Path, new: Path, *options: Any) -> None:
        assert spark._sc._gateway is not None
        given = spark._sc._gateway.new_array(hadoop.Options.Rename, len(options))
        for number, option in enumerate(options):
            given[number] = option
        context.rename(hadoop.Path(f"file:{old}"), hadoop.Path(f"file:{new}"), given)

    return rename


@pytest.mark.parametrize(
    ("octal", "before", "after"),
    [(0o640, 0o600, "-rw-r-----"), (0o1777, 0o700, "drwxrwxrwt"), (0o755, 0o2700, "drwxr-sr-x")],
)
def test_a_permission_is_what_was_asked_for(
    hadoop: Any, files: Any, tmp_path: Path, octal: int, before: int, after: str
) -> None:
    path = tmp_path / "it"
    path.mkdir() if after.startswith("d") else path.touch()
    path.chmod(before)
    files.setPermission(hadoop.Path(str(path)), hadoop.permission.FsPermission(octal))
    assert mode(path) == after


def test_new_files_and_folders_are_for_their_user_alone(hadoop: Any, files: Any, tmp_path: Path) -> None:
    files.create(hadoop.Path(f"{tmp_path}/a/b/file")).close()
    assert [mode(tmp_path / each) for each in ("a", "a/b", "a/b/file")] == ["drwx------", "drwx------", "-rw-------"]


def test_a_link_is_told_from_what_it_leads_to(hadoop: Any, files: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    linked = {
        name: files.getRawFileSystem().getFileLinkStatus(hadoop.Path(f"{tmp_path}/{name}")).isSymlink()
        for name in ("file", "link", "broken")
    }
    assert linked == {"file": False, "link": True, "broken": True}
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        files.getRawFileSystem().getFileLinkStatus(hadoop.Path(f"{tmp_path}/nothing"))


def test_a_commit_takes_no_name_that_is_taken(hadoop: Any, rename: Callable[..., None], tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "00000000000000000001.json"
    ours.write_text("ours")
    theirs.write_text("theirs")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        rename(ours, theirs)
    assert (ours.read_text(), theirs.read_text()) == ("ours", "theirs")
    rename(ours, theirs, hadoop.Options.Rename.OVERWRITE)
    assert (ours.exists(), theirs.read_text()) == (False, "ours")


def test_another_rename_takes_none_either(hadoop: Any, files: Any, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).write_text(name)
    old, new, theirs = (hadoop.Path(f"{tmp_path}/{name}") for name in ("ours", "new", "theirs"))
    assert (files.rename(old, theirs), files.rename(old, new)) == (False, True)
    assert sorted((each.name, each.read_text()) for each in tmp_path.iterdir()) == [
        ("new", "ours"),
        ("theirs", "theirs"),
    ]


def test_a_rename_that_fails_copies_nothing(shim: Shim | None, rename: Callable[..., None], tmp_path: Path) -> None:
    if shim is None:
        pytest.skip(NO_COMPILER)
    (tmp_path / "old").write_text("text")
    with shim.failing(Failure.ERROR, at=1), pytest.raises(Py4JJavaError, match="Input/output error"):
        rename(tmp_path / "old", tmp_path / "new")
    assert [file.name for file in tmp_path.iterdir()] == ["old"]


def test_why_a_folder_can_t_be_made_is_told(shim: Shim | None, hadoop: Any, files: Any, tmp_path: Path) -> None:
    if shim is None:
        pytest.skip(NO_COMPILER)
    with shim.failing(Failure.FULL, at=1), pytest.raises(Py4JJavaError, match="No space left on device"):
        files.mkdirs(hadoop.Path(f"{tmp_path}/a/b"))


def test_what_is_not_deleted_is_told(spark: SparkSession, shim: Shim | None, tmp_path: Path) -> None:
    if shim is None:
        pytest.skip(NO_COMPILER)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    with shim.failing(Failure.ERROR, at=2), pytest.raises(LakehouseError, match=r"/folder: can't be deleted$"):
        Files(spark).delete(f"{tmp_path}/folder")
    Files(spark).delete(f"{tmp_path}/folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the page faults of ended children are told by Linux only")
def test_no_process_is_started(
    spark: SparkSession, hadoop: Any, files: Any, rename: Callable[..., None], tmp_path: Path
) -> None:
    assert spark._jvm is not None
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()

    def of_children() -> int:
        return int(Path(f"/proc/{jvm}/stat").read_text().rpartition(")")[2].split()[8])

    before = of_children()
    files.create(hadoop.Path(f"{tmp_path}/a/file")).close()
    rename(tmp_path / "a" / "file", tmp_path / "a" / "other")
    assert of_children() == before


def synced(shim: Shim, folder: Path) -> list[str]:
    """What was synced in a folder since the shim takes notes."""
    calls = [line.split("\t") for line in shim.notes.read_text().splitlines()]
    paths = {Path(path) for _, name, _, _, path, _ in calls if name == "sync"}
    return sorted(str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder))


def test_a_commit_of_delta_rs_is_synced_before_it_is_relied_on(
    shim: Shim | None, hadoop: Any, files: Any, tmp_path: Path
) -> None:
    if shim is None:
        pytest.skip(NO_COMPILER)
    write_deltalake(tmp_path, pa.table({"place": ["a b"], "id": [1]}), partition_by=["place"])
    commit = hadoop.Path(f"{tmp_path}/_delta_log/{0:020}.json")
    [file] = tmp_path.glob("*/*.parquet")
    with shim.failing(notes=True):
        files.open(commit).close()
    made = [tmp_path, tmp_path / "_delta_log", file.parent, file, tmp_path / "_delta_log" / commit.getName()]
    assert synced(shim, tmp_path) == sorted(str(path.relative_to(tmp_path)) for path in made)
    (tmp_path / "_delta_log" / f"{0:020}.crc").touch()
    with shim.failing(notes=True):
        files.open(commit).close()
    assert synced(shim, tmp_path) == []


@pytest.fixture
def listed(spark: SparkSession, hadoop: Any) -> Callable[[Path, str], list[tuple[str, int]]]:
    """The names and sizes of the files that Delta's log lists from a name on."""
    assert spark._jvm is not None
    conf = spark._jsc.hadoopConfiguration()
    log = spark._jvm.lakehouse.LocalLog(conf)

    def listed(folder: Path, first: str) -> list[tuple[str, int]]:
        found, held = log.listFrom(hadoop.Path(f"file:{folder}/{first}"), conf), []
        while found.hasNext():
            status = found.next()
            held.append((status.getPath().getName(), status.getLen()))
        return held

    return listed


def commit(folder: Path, *versions: int) -> None:
    for version in versions:
        (folder / f"{version:020}.json").write_text("x" * version)


def from_version(version: int) -> str:
    return f"{version:020}."


def test_a_log_is_listed_from_a_version_on(
    listed: Callable[[Path, str], list[tuple[str, int]]], tmp_path: Path
) -> None:
    commit(tmp_path, 9, 11, 10)
    (tmp_path / f".{10:020}.json.tmp").touch()
    assert listed(tmp_path, from_version(10)) == [(f"{10:020}.json", 10), (f"{11:020}.json", 11)]
    assert listed(tmp_path, from_version(12)) == []
    commit(tmp_path, 12)
    for kind in ("crc", "checkpoint.parquet"):
        (tmp_path / f"{11:020}.{kind}").touch()
    assert listed(tmp_path, from_version(11)) == [
        (f"{11:020}.checkpoint.parquet", 0),
        (f"{11:020}.crc", 0),
        (f"{11:020}.json", 11),
        (f"{12:020}.json", 12),
    ]
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        listed(tmp_path / "nothing", from_version(0))


def test_the_list_of_a_log_ends_where_nothing_follows(
    listed: Callable[[Path, str], list[tuple[str, int]]], tmp_path: Path
) -> None:
    commit(tmp_path, 3, 4)
    for first, found in ((0, [3, 4]), (4, [4]), (5, []), (6, []), (0, [3, 4])):
        assert [size for _, size in listed(tmp_path, from_version(first))] == found


@pytest.mark.parametrize("versions", [[1, 2, 3, 5], [1, 2, 5, 6]])
def test_a_commit_that_is_missing_hides_none_of_those_after_it(
    listed: Callable[[Path, str], list[tuple[str, int]]], tmp_path: Path, versions: list[int]
) -> None:
    commit(tmp_path, *versions)
    for _ in range(2):
        assert [size for _, size in listed(tmp_path, from_version(0))] == versions
        assert [size for _, size in listed(tmp_path, from_version(2))] == versions[1:]


def test_a_commit_that_vanishes_is_missed(listed: Callable[[Path, str], list[tuple[str, int]]], tmp_path: Path) -> None:
    commit(tmp_path, 1, 2, 3, 4)
    assert [size for _, size in listed(tmp_path, from_version(0))] == [1, 2, 3, 4]
    (tmp_path / f"{3:020}.json").unlink()
    for first, found in ((1, [1, 2, 4]), (3, [4])):
        assert [size for _, size in listed(tmp_path, from_version(first))] == found


def test_files_of_other_kinds_are_listed(listed: Callable[[Path, str], list[tuple[str, int]]], tmp_path: Path) -> None:
    commit(tmp_path, 1, 2)
    (tmp_path / f"{1:020}.checkpoint.0000000001.0000000001.parquet").touch()
    for _ in range(2):
        assert [size for _, size in listed(tmp_path, from_version(1))] == [0, 1, 2]


def test_spark_lists_logs_with_it(spark: SparkSession) -> None:
    assert spark._jvm is not None
    path = spark._jvm.org.apache.hadoop.fs.Path("file:/table/_delta_log")
    store = spark._jvm.org.apache.spark.sql.delta.storage.LogStore.apply(spark._jsparkSession)
    assert store.schemeBasedLogStore(path).logStoreImpl().getClass().getName() == "lakehouse.LocalLog"
