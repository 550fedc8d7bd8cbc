"""Checksums of files on this machine, as Hadoop keeps them: `.name.crc` beside `name` has one for each chunk of it.

Spark writes them, and verifies what it reads. Here the same is done for delta-rs and Arrow, which don't know them:
before they read a file, all of it is verified, once in a process. In an object store there are none: it has its own.
"""

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zlib import crc32

import pyarrow as pa
from deltalake import DeltaTable

from pulsar_lakehouse.damage import DIFFER, damaged

MAGIC = b"crc\0"
_HEADER = struct.Struct(">4si")
CHUNK = 2**14
"""Bytes. Hadoop's default is 512, which takes Python three times as long, and holds its lock."""
READ = 2**20


def local_folder(table: DeltaTable) -> Path | None:
    """The folder of a table; None if it is in an object store."""
    where = urlsplit(table.table_uri)
    return Path(unquote(where.path)) if where.scheme in ("", "file") else None


def checksum_path(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def files_written(commit: Path) -> list[str]:
    """The files that a commit has written."""
    actions = map(json.loads, commit.read_text().splitlines())
    return [unquote(action[kind]["path"]) for action in actions for kind in ("add", "cdc") if kind in action]


def write_checksums(table: Path, files: Iterable[str]) -> None:
    """Write the checksums of files of a table that are there and were just written.

    They may be missing, as on a full disk, but not be those of what was there before.
    """
    for file in (f"{table}/{each}" for each in files):
        kept = Path(checksum_path(file))
        draft = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
        try:
            draft.write_bytes(_HEADER.pack(MAGIC, CHUNK) + b"".join(_sums(file, CHUNK)))
            draft.replace(kept)
        except OSError:  # such as on a full disk
            for each in (draft, kept):
                with suppress(OSError):
                    each.unlink(missing_ok=True)


def _sums(file: str, chunk: int) -> Iterator[bytes]:
    with Path(file).open("rb") as opened:
        while read := opened.read(max(READ // chunk, 1) * chunk):
            yield _sums_of(memoryview(read), chunk)


def _sums_of(read: memoryview, chunk: int) -> bytes:
    return b"".join([crc32(read[at : at + chunk]).to_bytes(4, "big") for at in range(0, len(read), chunk)])


def _kept(file: str, size: int) -> tuple[int, bytes] | None:
    """The size of a chunk, and the checksums; None if there are none for a file of this size, as after a power cut."""
    try:
        kept = Path(checksum_path(file)).read_bytes()
    except FileNotFoundError:
        return None
    if len(kept) < _HEADER.size:
        return None
    magic, chunk = _HEADER.unpack_from(kept)
    if magic != MAGIC or chunk <= 0 or len(kept) != _HEADER.size + 4 * -(-size // chunk):
        return None
    return chunk, kept[_HEADER.size :]


def is_as_written(file: str) -> bool | None:
    """Whether a file is as it was written; None if it has no checksums. Raises FileNotFoundError."""
    held = Path(file).stat()
    return _is_as_written(file, held.st_size, held.st_mtime_ns)


@lru_cache(2**14)  # a file of a table does not change, and is read again and again
def _is_as_written(file: str, size: int, changed: int) -> bool | None:
    if (kept := _kept(file, size)) is None:
        return None
    chunk, sums = kept
    at = 0
    for found in _sums(file, chunk):
        if found != sums[at : at + len(found)]:
            return False
        at += len(found)
    return True


def verify(table: DeltaTable, files: pa.Table) -> None:
    """Raise DamagedError if one of these files of a table is not as it was written, for readers that don't see it."""
    if (folder := local_folder(table)) is not None:
        paths = map(unquote, files["path"].to_pylist())
        verify_files(folder, dict(zip(paths, files["size_bytes"].to_pylist(), strict=True)))


def verify_files(folder: Path, sizes: Mapping[str, int | None]) -> None:
    """The same for files in the folder of a table, with the sizes that the log has."""
    for path, size in sizes.items():
        file = f"{folder}/{path}"
        with suppress(FileNotFoundError):  # who reads it tells that
            held = Path(file).stat()
            if size is not None and held.st_size != size:
                raise damaged(file, f"it has {held.st_size:,} bytes of {size:,}")
            if _is_as_written(file, held.st_size, held.st_mtime_ns) is False:
                raise damaged(file, DIFFER)
