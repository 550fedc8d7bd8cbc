"""Where tables and checkpoints are: in folders, or in an object store that speaks S3.

What tells a library how to reach the store is here: Spark's properties, and the options of deltalake and obstore. All
of them find the credentials themselves, as other programs for AWS do.
"""

from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, MemoryStore, ObjectStore, S3Store

from pulsar_lakehouse import disk
from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.settings import Settings, is_remote

ID = ".id"
"""The file in the warehouse that has its id."""
TIMEOUT, CONNECT_TIMEOUT = "60s", "5s"
SPARK_PROPERTIES = {
    # Environment variables, web identity, profiles, containers and instances, in this order.
    "spark.hadoop.fs.s3a.aws.credentials.provider": (
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    ),
    # A file that is created is not looked for before; what must not replace another is put only if there is none.
    "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
    "spark.hadoop.fs.s3a.input.stream.type": "classic",
    # An answer that does not come is waited for in some 30 s, and not in 15 minutes.
    "spark.hadoop.fs.s3a.attempts.maximum": "3",
    "spark.hadoop.fs.s3a.retry.limit": "4",
    "spark.hadoop.fs.s3a.connection.establish.timeout": CONNECT_TIMEOUT,
    "spark.hadoop.fs.s3a.connection.timeout": TIMEOUT,
}


def has_tables(settings: Settings) -> bool:
    """Whether the tables are in an object store, where other machines can write them, and nothing can be renamed."""
    return is_remote(settings.warehouse_root)


def is_used(settings: Settings) -> bool:
    return has_tables(settings) or is_remote(settings.checkpoint_root)


def time_precision(path: str) -> timedelta:
    """What to add to the time of a file, so that nothing in it is newer: a store may know only its second."""
    return timedelta(milliseconds=999 if is_remote(path) else 0)


def spark_properties(settings: Settings) -> dict[str, str]:
    """What Spark needs to use the store; empty if nothing is in one."""
    if not is_used(settings):
        return {}
    s3 = settings.s3
    given = {"endpoint": s3.endpoint, "endpoint.region": s3.region, "path.style.access": str(s3.path_style).lower()}
    managed = {"spark.sql.streaming.checkpointFileManagerClass": "lakehouse.StoreCheckpoints"}
    return {
        **SPARK_PROPERTIES,
        "spark.delta.logStore.s3a.impl": "lakehouse.StoreLog",
        **(managed if is_remote(settings.checkpoint_root) else {}),
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in given.items() if value},
    }


def table_options(settings: Settings) -> dict[str, str]:
    """What deltalake needs to use the tables."""
    return store_options(settings, settings.warehouse_root)


def source_path(settings: Settings, path: str) -> str:
    """Where files of others are: a path of this machine is beside the folder of declarations, unless it is absolute."""
    return path if is_remote(path) else str(settings.declarations.resolve().parent / path)


def store_options(settings: Settings, path: str) -> dict[str, str]:
    """What deltalake needs to use what is at the path."""
    if not is_remote(path):
        return {}
    times = {"timeout": TIMEOUT, "connect_timeout": CONNECT_TIMEOUT, "max_retries": "4", "retry_timeout": "30s"}
    return {f"aws_{name}": value for name, value in _config(settings).items()} | times | _transport(settings)


def folder(settings: Settings, path: str) -> ObjectStore:
    """The files under a path, by their names relative to it. A folder that does not exist is empty."""
    if not is_remote(path):
        return LocalStore(path) if Path(path).is_dir() else MemoryStore()
    parts, config, transport = urlsplit(path), _config(settings), _transport(settings)
    client: Any = {"timeout": TIMEOUT, "connect_timeout": CONNECT_TIMEOUT, **transport}
    retries: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}
    store: Any = S3Store  # its parameters are declared as those of Amazon's regions
    made: ObjectStore = store(
        parts.netloc, prefix=parts.path.strip("/"), config=config, client_options=client, retry_config=retries
    )
    return made


def files_in(settings: Settings, path: str, under: str | None = None) -> dict[str, datetime]:
    """When the files under a path were written, by their names relative to it."""
    listed = obstore.list(folder(settings, path), under)
    return {file["path"]: file["last_modified"] for batch in listed for file in batch}


def put(settings: Settings, root: str, name: str, content: bytes, *, replace: bool = True) -> None:
    """Write a small file under a root, which is whole or not there.

    Raises FileExistsError if there is a file that it shall not `replace`.
    """
    if not is_remote(root):
        disk.write(Path(root, name), content, replace=replace)
        return
    try:
        obstore.put(folder(settings, root), name, content, mode="overwrite" if replace else "create")
    except AlreadyExistsError as error:
        raise FileExistsError(f"{root}/{name}") from error


def sync_table(settings: Settings, name: str) -> None:
    """Wait until what delta-rs has written to the table is there for good. In a store, it is when it is written."""
    if not has_tables(settings):
        disk.sync_all(settings.table_path(name))


def warehouse_id(settings: Settings) -> str:
    """The id of the warehouse, which it has been given at the first call, and which a copy of it has, too.

    Raises PermanentError if its folder can't be made.
    """
    return said_once(settings, ID, uuid4().hex)


def said_once(settings: Settings, name: str, text: str) -> str:
    """What the warehouse's file `name` says: this text, if there was no such file.

    Raises PermanentError if the warehouse's folder is not writable.
    """
    root = settings.warehouse_root
    is_empty = False
    with suppress(FileNotFoundError):
        if held := _read(settings, name):
            return held
        is_empty = True  # an early release has written it, and then there was a power cut
    try:
        with suppress(FileExistsError):
            put(settings, root, name, text.encode(), replace=is_empty)
    except (OSError, BaseError) as error:
        if has_tables(settings):
            raise
        raise PermanentError(f"not writable: {root}: {getattr(error, 'strerror', None) or error}") from error
    return _read(settings, name)


def _read(settings: Settings, name: str) -> str:
    return bytes(obstore.get(folder(settings, settings.warehouse_root), name).bytes()).decode()


def _config(settings: Settings) -> dict[str, str]:
    s3 = settings.s3
    given = {"endpoint": s3.endpoint, "region": s3.region}
    style = {"virtual_hosted_style_request": str(not s3.path_style).lower()}
    return {name: value for name, value in given.items() if value} | style


def _transport(settings: Settings) -> dict[str, str]:
    return {"allow_http": "true"} if (settings.s3.endpoint or "").startswith("http:") else {}
