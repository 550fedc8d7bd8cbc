"""Files in any file system that Spark supports, as Spark reads them: with Hadoop's checksums."""

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.spark.error_causes import cause_of


@dataclass(frozen=True)
class Files:
    """Each path is a folder or file of this machine, or a URI. Py4JJavaError tells what fails."""

    spark: SparkSession

    def exists(self, path: str) -> bool:
        """Whether a path exists, or any path that matches a glob pattern."""
        files, where = self._at(path)
        found = files.globStatus(where)
        return found is not None and len(found) > 0

    def matching(self, pattern: str) -> list[str]:
        """The sorted paths that match a glob pattern."""
        files, where = self._at(pattern)
        return [str(status.getPath().toString()) for status in files.globStatus(where) or ()]

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its contents, if it exists. Raises LakehouseError if it is still there."""
        files, where = self._at(path)
        if not files.delete(where, True) and files.exists(where):
            raise LakehouseError(f"{path}: can't be deleted")

    def move(self, path: str, target: str) -> None:
        """Rename a folder, and create the folders above its new name. Raises LakehouseError if that is not possible."""
        files, where = self._at(path)
        _, there = self._at(target)
        files.mkdirs(there.getParent())
        try:
            moved = files.rename(where, there)
        except Py4JJavaError as error:
            raise LakehouseError(f"{path} can't be moved to {target}: {cause_of(error)}") from error
        if not moved:
            raise LakehouseError(f"{path} can't be moved to {target}")

    def modified_at(self, path: str) -> int:
        """When a file was last written, in epoch milliseconds."""
        return int(self._status(path).getModificationTime())

    def size(self, path: str) -> int:
        """The bytes of a file."""
        return int(self._status(path).getLen())

    def read_text(self, path: str) -> str:
        """The text of a small file. Raises UnicodeDecodeError if it is not UTF-8."""
        files, where = self._at(path)
        stream = files.open(where)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _status(self, path: str) -> Any:
        files, where = self._at(path)
        return files.getFileStatus(where)

    def _at(self, path: str) -> tuple[Any, Any]:
        """Hadoop's objects for the file system and the path."""
        where = java_class(self.spark, "org.apache.hadoop.fs.Path")(path)
        return where.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf()), where


def java_class(spark: SparkSession, name: str) -> Any:
    """The class with a full name. `jvm.org.apache…` would search every jar for each part of the name, in 2 ms."""
    return getattr(spark._jvm, name)
