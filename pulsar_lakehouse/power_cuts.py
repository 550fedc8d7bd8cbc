"""Removes the last commit of a table of which a loss of power has left only a part.

Commits of delta-rs are synced after they are visible, before this process goes on, and before Spark reads them. So
after a loss of power, the last commit of a table can be torn, or lack files, and nothing relies on it. It is done
again. What a commit of Spark names is synced before it (`local_files.scala`).
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psutil

from pulsar_lakehouse import disk
from pulsar_lakehouse.locks import exclusive
from pulsar_lakehouse.progress import CONSOLE
from pulsar_lakehouse.settings import Settings, is_remote

UNSYNCED = 5
"""Commits at the end of a log that may not have been synced, as each process that appends to it has one."""
OLD = 6 * 24 * 3600
"""Seconds after which a commit that can be read is taken for whole: maintenance may soon remove files that it added."""
BOOT = Path("leases") / ".boot"
"""The file in a home that names the last starts of machines since which its tables were looked through."""
STARTS = 10
"""How many these are: machines can share a home."""
_VERSION = re.compile(r"\.?(\d{20})\.(?:json|crc|checkpoint\.parquet)(?:\.crc)?")


def remove_torn_commits(settings: Settings) -> None:
    """Do so once after each start of the machine, before anything is written."""
    root, file, boot = settings.warehouse_root, settings.home / BOOT, _boot()
    if is_remote(root) or is_remote(settings.checkpoint_root) or boot in _known(file):
        return
    with exclusive(file.with_suffix(".lock")):
        if boot not in (known := _known(file)):
            for log in Path(root).glob("*/*/_delta_log"):
                _look_through(log)
            disk.write(file, "\n".join([*known, boot][-STARTS:]).encode())


def _known(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _boot() -> str:
    """Differs after each start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(psutil.boot_time())


def _look_through(log: Path) -> None:
    of_version = {path: int(named[1]) for path in log.iterdir() if (named := _VERSION.fullmatch(path.name))}
    commits = sorted(path for path in of_version if path.suffix == ".json" and path.name[0] != ".")
    if not commits:
        return
    last = of_version[commits[-1]]
    removed: set[str] = set()
    for commit in reversed(commits[-UNSYNCED:]):
        actions, age = _actions(commit), time.time() - commit.stat().st_mtime
        by_spark = any("Spark" in str(action.get("commitInfo", {}).get("engineInfo")) for action in actions)
        is_synced = commit.with_suffix(".crc").exists()  # which is written after the sync
        if by_spark or is_synced or (actions and age > OLD):
            break
        added = [(path, size) for path, size in _added(actions) if path not in removed]
        removed |= {unquote(action["remove"]["path"]) for action in actions if "remove" in action}
        if not actions or not all(_is_whole(log.parent / path, size) for path, size in added):
            last = of_version[commit] - 1
            name = ".".join(log.parts[-3:-1])
            CONSOLE.say(f"{name}: version {last + 1} was torn by a power cut: it is removed, and made again")
        in_log = (commit, commit.with_suffix(".checkpoint.parquet"), log / "_last_checkpoint")
        for file in (*in_log, *(log.parent / path for path, _ in added)):
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # these checksums may be torn
    for path, version in sorted(of_version.items(), reverse=True):  # later commits first
        if version > last or (version == last and path.suffix == ".parquet" and not _is_whole(path)):
            path.unlink(missing_ok=True)
            (log / "_last_checkpoint").unlink(missing_ok=True)  # it is only a hint
    disk.sync_all(log)


def _actions(commit: Path) -> list[dict[str, dict[str, Any]]]:
    """The actions of a commit; none if it is torn."""
    with suppress(ValueError):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        if all(isinstance(action, dict) for action in actions):
            return actions
    return []


def _added(actions: list[dict[str, dict[str, Any]]]) -> Iterator[tuple[str, int]]:
    """The files of rows and of changes, with their sizes."""
    for action in actions:
        for kind in action.keys() & {"add", "cdc"}:
            yield unquote(action[kind]["path"]), action[kind]["size"]


def _is_whole(file: Path, size: int | None = None) -> bool:
    """Whether all of a Parquet file is there. Raises OSError if that can't be told."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowInvalid

    try:
        for _ in pq.ParquetFile(file).iter_batches():
            pass
        return size is None or file.stat().st_size == size
    except (FileNotFoundError, ArrowInvalid):
        return False
    except OSError as error:
        if error.errno:  # and not one of Arrow about what it has read
            raise
        return False
