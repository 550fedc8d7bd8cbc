"""The SQL endpoint for BI tools and the like: Spark's Thrift server, with passwords and read-only.

`serve.scala`, which is compiled once, decides which clients and statements it accepts.
"""

import base64
import hashlib
import ipaddress
import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pyspark
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificates
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pulsar_lakehouse import audit
from pulsar_lakehouse.access import ALL, PII, Reader
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.jvm.scala import compiled
from pulsar_lakehouse.leases.leases import home_lock
from pulsar_lakehouse.local.processes import choose_port, read_state, write_state
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import PREFIX, Settings, variables
from pulsar_lakehouse.spark.session import driver_jars, is_local, spark_conf, start_spark
from pulsar_lakehouse.sql_server.sandbox import confine
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import LAYERS

SOURCE = Path(__file__).with_suffix(".scala")
ITERATIONS = 200_000
"""Iterations of a password's hash, as in `serve.scala`."""

Loaded = TypeVar("Loaded")
THRIFT_SERVER = "org.apache.spark.sql.hive.thriftserver"

SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/dev/null", "/dev/random", "/dev/urandom"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf"),
    "/etc/ssl/certs",
    *map(str, Path("/etc").glob("java*")),
)
"""System files that Java, and the shell that starts it, read."""


class Served:
    """The running endpoint and the tables that it serves."""

    def __init__(self, lake: Lake, readers: Mapping[str, Reader], *, url: str, confined: bool) -> None:
        self.url, self.confined = url, confined
        self._lake, self._scala = lake, _scala(lake.spark)
        self.unreadable: set[str] = set()
        """Tables that are not served because their logs can't be read."""
        self._schemas: dict[str, StructType] = {}
        self._catalogs = {reader: self._catalog(reader) for reader in set(readers.values())}
        for user, reader in readers.items():
            self._scala.Guests.admit(user, self._catalogs[reader], reader.sees_personal_data)

    def _catalog(self, reader: Reader) -> Any:
        """A Spark session with a catalog of its own: what the reader may not read does not exist in it."""
        apart = self._scala.Tables.apart(self._lake.spark._jsparkSession)
        granted = {grant.partition(".")[0] for grant in reader.grants}
        for layer in LAYERS if ALL in granted else granted - {PII}:
            self._scala.Tables.createSchema(apart, layer, f"file:{tempfile.gettempdir()}/{layer}")
        return apart

    def refresh(self) -> None:
        """Register new tables and changed columns, and drop tables that are gone. Rows are always current."""
        schemas, unreadable = {}, set()
        names = (name for layer in LAYERS for name in self._lake.names_in(layer))
        for name in (name for name in names if name.count(".") == 1):  # no copy that somebody made: gold/orders.bak
            try:
                schemas[name] = self._lake.table(name).schema
            except (Py4JJavaError, PySparkException):
                unreadable.add(name)
        tables = self._scala.Tables
        for reader, catalog in self._catalogs.items():
            for name, schema in self._schemas.items():
                if schemas.get(name) != schema and reader.may_read(name):
                    tables.forget(catalog, *name.split("."))
            for name, schema in schemas.items():
                if self._schemas.get(name) != schema and reader.may_read(name):
                    path, masked = self._lake.table(name).path, ",".join(reader.masked(name))
                    tables.register(catalog, *name.split("."), path, schema.json(), masked)
        self._schemas, self.unreadable = schemas, unreadable


@contextmanager
def serving(settings: Settings, readers: Mapping[str, Reader]) -> Iterator[Served]:
    """Run the endpoint for these users while the block runs. The block must call `refresh` from time to time.

    With Landlock, this process and its JVM can then read little more than the tables, and write little more than a
    folder of their own.

    Raises ConfigurationError if there are no users, if other machines could connect without TLS, if the certificate is
    not valid or if the port is taken. Raises BusyError if another process runs the endpoint.
    """
    if not settings.serve.users:
        example = f'{PREFIX}SERVE__USERS=\'{{"ada": "her password"}}\''
        raise ConfigurationError(f"serve.users: nobody could log in: set {example}")
    keys = _keys(settings)
    if keys is None and not _is_loopback(settings.serve.host):
        raise ConfigurationError(
            f"serve.host {settings.serve.host}: connections from other machines must be encrypted: set "
            "serve.tls_certificate and serve.tls_key, or 127.0.0.1"
        )
    with home_lock(settings, "serve") as lease:
        port, extension = _choose_port(settings), compiled(SOURCE, settings.cache)
        with spinner(f"Starting the SQL endpoint at {settings.serve.host}:{port}"):
            own = _own_settings(settings)
            _prepare_environment(settings, extension)
            confined = _confine(settings, extension)
            spark = start_spark(own, inherited=lease.files)
            url = f"jdbc:hive2://{settings.serve.host}:{port}{'/;ssl=true' if keys else ''}"
            served = Served(Lake(spark, own), readers, url=url, confined=confined)
            for layer in LAYERS:  # of nobody, and without tables: a client can ask for one as it connects
                _scala(spark).Tables.createSchema(spark._jsparkSession, layer, f"file:{tempfile.gettempdir()}/{layer}")
            served.refresh()
            _start_thrift_server(Lake(spark, settings), port, keys)
        yield served


def _is_loopback(host: str) -> bool:
    try:
        addresses = {str(each[4][0]) for each in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ConfigurationError(f"serve.host {host}: no such address: {error.strerror}") from error
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


def _keys(settings: Settings) -> tuple[bytes, str] | None:
    """The certificate and its key as PKCS #12, which Java can read, with its password; None if no TLS is configured."""
    file, key_file = settings.serve.tls_certificate, settings.serve.tls_key
    if file is None or key_file is None:
        return None
    password = secrets.token_urlsafe(16)
    certificate, *others = _read("serve.tls_certificate", file, load_pem_x509_certificates, "certificate")
    key = _read(
        "serve.tls_key",
        key_file,
        lambda pem: cast(pkcs12.PKCS12PrivateKeyTypes, load_pem_private_key(pem, None)),
        "key without a passphrase",
    )
    try:
        packed = pkcs12.serialize_key_and_certificates(
            b"lakehouse", key, certificate, others, BestAvailableEncryption(password.encode())
        )
    except ValueError as error:
        raise ConfigurationError(f"serve.tls_key {key_file}: must be the key of {file}") from error
    return packed, password


def _read(name: str, file: Path, load: Callable[[bytes], Loaded], what: str) -> Loaded:
    try:
        return load(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{name} {file}: {error.strerror}") from error
    except (TypeError, ValueError) as error:  # TypeError if there is a passphrase
        raise ConfigurationError(f"{name} {file}: must be a {what}, in PEM") from error


def _choose_port(settings: Settings) -> int:
    state = _folder(settings) / "state.json"
    try:
        port = choose_port("serve.port", settings.serve.port, read_state(state).get("port", 0))
    except OSError as error:
        raise ConfigurationError(str(error)) from error
    state.parent.mkdir(parents=True, exist_ok=True)
    write_state(state, {"port": port})
    return port


def _own_settings(settings: Settings) -> Settings:
    """The user's settings with the Spark properties that the endpoint needs."""
    base, temporary = spark_conf(settings, keep_classes=False), _folder(settings) / "tmp"
    options = base.get("spark.driver.extraJavaOptions", "")
    conf = {
        **settings.spark.conf,
        "spark.sql.extensions": f"{base['spark.sql.extensions']},lakehouse.ReadOnly",
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.variable.substitute": "false",
        "spark.local.dir": str(temporary),
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
        "spark.sql.thriftServer.queryTimeout": str(settings.serve.query_timeout),
        "spark.sql.thriftServer.interruptOnCancel": "true",
        "spark.driver.maxResultSize": settings.serve.max_result,
        # Remote executors don't have this class.
        **({"spark.io.compression.codec": f"{THRIFT_SERVER}.Uncompressed"} if is_local(settings) else {}),
        # A broadcast table counts towards the result limit, and is larger than its files.
        "spark.sql.autoBroadcastJoinThreshold": "4m",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "4m",
        "spark.driver.extraJavaOptions": f'{options} "-Djava.io.tmpdir={temporary}"',
    }
    return settings.model_copy(update={"spark": settings.spark.model_copy(update={"conf": conf})})


def _prepare_environment(settings: Settings, extension: Path) -> None:
    """Give temporary files a folder of their own; give the JVM our classes, and keep our secrets from it."""
    temporary = _folder(settings) / "tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    (temporary / "hive").mkdir(parents=True)
    # It comes last on the class path, so that the JVM can still use the class archive of an earlier one.
    os.environ["SPARK_DIST_CLASSPATH"] = str(extension)
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    for name in variables():
        del os.environ[name]


def _hash(password: str) -> str:
    salt = secrets.token_bytes(16)
    hashed = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    return f"{base64.b64encode(salt).decode()} {base64.b64encode(hashed).decode()}"


def _confine(settings: Settings, extension: Path) -> bool:
    home, tables = settings.home, local_folders(settings.warehouse_root)
    for folder in (home / "spark", home / "logs", audit.folder(settings), *tables):
        folder.mkdir(parents=True, exist_ok=True)
    python = (Path(sys.prefix), Path(sys.base_prefix), Path(pyspark.__file__).parent, SOURCE.parent.parent)
    reads = (*map(Path, SYSTEM), *python, java_home(), extension, *driver_jars(settings))
    return confine(
        reads=[*reads, *tables],
        writes=[_folder(settings) / "tmp", home / "logs", audit.folder(settings), Path("/dev/null")],
    )


def local_folders(root: str) -> list[Path]:
    """The folder of a path or `file:` URI; empty for remote storage."""
    path = re.sub("^file:(//)?", "", root)
    return [] if "://" in path else [Path(path)]


def _start_thrift_server(lake: Lake, port: int, keys: tuple[bytes, str] | None) -> None:
    jvm, users = lake.spark._jvm, lake.settings.serve.users.items()
    assert jvm is not None
    properties = {
        "lakehouse.users": "\n".join(f"{name} {_hash(password.get_secret_value())}" for name, password in users),
        "lakehouse.audit": str(audit.folder(lake.settings) / audit.NAME),
        "lakehouse.sessions": str(lake.settings.serve.sessions_per_user),
        "hive.server2.authentication": "CUSTOM",
        "hive.server2.custom.authentication.class": "lakehouse.Passwords",
        "hive.server2.logging.operation.log.location": f"{_folder(lake.settings)}/tmp/hive/operations",
        "hive.server2.thrift.bind.host": lake.settings.serve.host,
        "hive.server2.thrift.port": str(port),
        "hive.server2.async.exec.threads": str(lake.settings.serve.max_queries),
        "hive.server2.session.check.interval": "0",  # otherwise the check would occupy one of these threads
        "hive.exec.scratchdir": f"{_folder(lake.settings)}/tmp/hive",
        "hive.exec.local.scratchdir": f"{_folder(lake.settings)}/tmp/hive",
    }
    for name, value in properties.items():
        jvm.java.lang.System.setProperty(name, value)
    tls = None if keys is None else jvm.lakehouse.Entrance.encryption(*keys)
    jvm.org.apache.spark.sql.hive.thriftserver.ReadOnlyServer.start(
        lake.spark._jsparkSession, jvm.scala.Option.apply(tls)
    )


def _scala(spark: SparkSession) -> Any:
    """The objects of `serve.scala`."""
    jvm = spark._jvm
    assert jvm is not None
    return jvm.lakehouse


def _folder(settings: Settings) -> Path:
    return settings.home / "serve"
