"""Files of this machine as Spark makes them: what Hadoop's own classes do, without a process for each."""

import stat
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


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
    """By which Delta and checkpoints commit."""
    found = hadoop.FileContext.getFileContext(spark._jsc.hadoopConfiguration())
    assert found.getDefaultFileSystem().getClass().getName() == "lakehouse.LocalContext"
    return found


def mode(path: Path) -> str:
    return stat.filemode(path.stat().st_mode)


@pytest.mark.parametrize(("octal", "told"), [(0o640, "-rw-r-----"), (0o1777, "-rwxrwxrwt")])
def test_a_permission_is_what_was_asked_for(hadoop: Any, files: Any, tmp_path: Path, octal: int, told: str) -> None:
    (tmp_path / "file").touch()
    files.setPermission(hadoop.Path(f"{tmp_path}/file"), hadoop.permission.FsPermission(octal))
    assert mode(tmp_path / "file") == told


def test_new_files_and_folders_have_what_the_umask_leaves(hadoop: Any, files: Any, tmp_path: Path) -> None:
    files.create(hadoop.Path(f"{tmp_path}/a/b/file")).close()
    assert [mode(tmp_path / each) for each in ("a", "a/b", "a/b/file")] == ["drwxr-xr-x", "drwxr-xr-x", "-rw-r--r--"]


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


def test_a_rename_takes_no_name_that_is_taken(spark: SparkSession, hadoop: Any, context: Any, tmp_path: Path) -> None:
    assert spark._sc._gateway is not None
    ours, theirs = tmp_path / "ours", tmp_path / "00000000000000000001.json"
    ours.write_text("ours")
    theirs.write_text("theirs")

    def rename(*options: Any) -> None:
        given = spark._sc._gateway.new_array(hadoop.Options.Rename, len(options))
        for number, option in enumerate(options):
            given[number] = option
        context.rename(hadoop.Path(f"file:{ours}"), hadoop.Path(f"file:{theirs}"), given)

    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        rename()
    assert (ours.read_text(), theirs.read_text()) == ("ours", "theirs")
    rename(hadoop.Options.Rename.OVERWRITE)
    assert (ours.exists(), theirs.read_text()) == (False, "ours")
