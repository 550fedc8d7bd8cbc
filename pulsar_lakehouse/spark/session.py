"""Starts and stops Spark. All Spark sessions are created here."""

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import pyspark
from py4j.java_gateway import JavaGateway, JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pulsar_lakehouse.downloads.artifacts import downloaded
from pulsar_lakehouse.engine.borrowing import Loan, borrow
from pulsar_lakehouse.engine.control import folder as engine_folder
from pulsar_lakehouse.engine.launch import EndedError, Gateway, gateway_of, launch
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.jvm.class_archives import archive_options, settle
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.jvm.scala import compiled
from pulsar_lakehouse.progress import spinner
from pulsar_lakehouse.settings import Settings, variables
from pulsar_lakehouse.spark.functions import register
from pulsar_lakehouse.spark.session_settings import ADAPTIVE, INTERPRETED
from pulsar_lakehouse.storage import is_used, spark_properties

# The code cache must be large: C1 alone gets 48 MB by default, and Spark's compiled code would be evicted all the time.
# A JVM that runs out of memory may hang or only partly work. It exits instead, and a new one continues its work.
JAVA_OPTIONS = "-XX:+UseParallelGC -XX:ReservedCodeCacheSize=256m -XX:+ExitOnOutOfMemoryError -Duser.timezone=UTC"
OUT_OF_MEMORY = 3
"""The exit code of a JVM that runs out of memory."""

LITTLE_DATA = {**INTERPRETED, ADAPTIVE: "false"}
"""Settings for queries that run only a few times: each is planned once, and no code is generated for it."""

SHORT_RUN = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", **LITTLE_DATA}
"""Settings for a run of a minute on little data: the JVM also compiles faster, to slower code."""

OF_ONE_COMMAND = re.compile(
    r"_*AIRFLOW|LAKEHOUSE_|OPENLINEAGE_|PYTEST_|TERM|COLORTERM|TMUX|SSH_|VSCODE_|XDG_SESSION_|MAKE|MFLAGS|VIRTUAL_ENV_"
    r"|(_|SHLVL|PWD|OLDPWD|COLUMNS|LINES|PS1|GPG_TTY|INVOCATION_ID)$"
)
"""Matches the variables of the environment that may differ between commands that use the same JVM."""

LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "lakehouse.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "lakehouse.LocalContext",
    "spark.delta.logStore.file.impl": "lakehouse.LocalLog",
    # Hadoop uses this instead of the umask of the process. Remote executors may belong to another user.
    "spark.hadoop.fs.permissions.umask-mode": "077",
}
"""Local files are created, renamed and listed by `local_files.scala`."""

CLEANING = 10.0
"""Seconds in which a JVM that is given back is cleaned, or else it is ended."""

CLASS_PATH = "spark.driver.extraClassPath"
PROGRAM = "spark"
SPARK_HOME = str(Path(pyspark.__file__).parent)

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # Other readers can't read the default, INT96, outside the years 1677 to 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Each page of a file has a checksum. Beside that, a local file has one for each chunk of it.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.hadoop.file.bytes-per-checksum": "16384",
    "spark.databricks.delta.snapshotPartitions": "1",
    # A stream may start from the changes of the next version, which does not exist yet.
    "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled": "true",
    # A batch uses more generated classes than the default of 100. Without room, each batch compiles them again.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Each hash table, and so each broadcast, takes at least a page, which is 64 MB by default.
    "spark.buffer.pageSize": "2m",
    # By default, the plans of the last 1,000 queries are kept for the UI. They would take hundreds of MB.
    "spark.sql.ui.retainedExecutions": "20",
    # A table is judged by the bytes of its compressed files: ten million positions count as less than 64 MB, and are
    # more than the JVM's memory when they are sent to all tasks. What earlier stages made is judged by its real size.
    "spark.sql.autoBroadcastJoinThreshold": "16m",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "64m",
    # With fewer concurrent writers, rows are sorted by the partition column before they are written.
    "spark.sql.maxConcurrentOutputFileWriters": "32",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Otherwise, each field gets a pruned copy of from_json, and the payload is parsed once per field.
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    # Otherwise, PySpark tells the JVM the line of Python behind each column expression, which takes 0.6 of its
    # 0.9 ms, and the JVM inspects its own stack.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # PySpark 4.2.0 hangs on a Python function over a columnar scan (SPARK-58241).
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # A Python process that ends itself, because a function in it does not return, says where that is.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.streaming.stopTimeout": "30s",
}
"""The Spark properties that do not depend on settings."""


def spark_conf(settings: Settings, *, keep_classes: bool = True) -> dict[str, str]:
    """The Spark properties that this pipeline needs; the user's own take precedence.

    If there is no class archive yet, `keep_classes` lets the JVM write one when it ends.
    """
    jars, own = [str(jar) for jar in driver_jars(settings)], settings.spark.conf
    cores = str(os.cpu_count() or 2)
    archive = archive_options(PROGRAM, [pyspark.__version__, *jars], keep=keep_classes)
    return {
        **CONF,
        "spark.app.name": f"lakehouse {settings.pulsar.namespace}",  # one Spark cluster may run those of several
        "spark.master": settings.spark.master,
        "spark.driver.memory": settings.spark.memory,
        "spark.driver.defaultJavaOptions": f"{JAVA_OPTIONS} {shlex.join(archive)}",
        "spark.executor.defaultJavaOptions": JAVA_OPTIONS,
        # Remote executors fetch the jars. A local one has the driver's; to copy them would take a second of each start.
        **(LOCAL_FILES if is_local(settings) else {"spark.jars": ",".join(jars)}),
        **spark_properties(settings),
        "spark.local.dir": str(settings.home / "spark"),
        "spark.sql.warehouse.dir": str(settings.home / "spark" / "warehouse"),
        # Tables are small and cores few: more partitions than cores only add tasks to start.
        "spark.sql.shuffle.partitions": cores,
        # The daemon imports modules before it forks the tasks' Python processes. Otherwise each of them takes 1 to 2
        # seconds for that. On other systems, the libraries that numpy loads may not survive a fork.
        **({"spark.python.daemon.module": "pulsar_lakehouse.bronze.python_daemon"} if sys.platform == "linux" else {}),
        **own,
        CLASS_PATH: os.pathsep.join([*jars, *filter(None, [own.get(CLASS_PATH)])]),
    }


def for_short_run(settings: Settings) -> Settings:
    """The settings for a short run; the user's own Spark properties take precedence."""
    spark = settings.spark.model_copy(update={"conf": SHORT_RUN | settings.spark.conf})
    return settings.model_copy(update={"spark": spark})


def driver_jars(settings: Settings) -> list[Path]:
    """The jars on the driver's class path beside Spark's, compiled or downloaded if the cache lacks them.

    Raises LakehouseError if that fails.
    """
    delta, sources = downloaded("spark", settings.cache), Path(__file__).parent
    own = [compiled(sources / "local_files.scala", settings.cache, uses=delta)] if is_local(settings) else []
    if is_used(settings):
        s3 = downloaded("s3", settings.cache)
        own += [compiled(sources / "object_store.scala", settings.cache, uses=[*delta, *s3]), *s3]
    return [*delta, *own]


def start_spark(settings: Settings, *, inherited: Sequence[int] = (), may_borrow: bool = False) -> SparkSession:
    """Start Spark, or return the running session. Spark logs to `<home>/logs/spark.log`.

    `inherited` are file descriptors that the JVM keeps open. A lock on one of them lasts as long as the JVM, which can
    outlive a killed Python process for a moment.

    With `may_borrow`, the JVM is that of the engine, if there is an engine and its JVM is idle. `stop_spark` gives it
    back. On a cluster, none is borrowed: an idle one would keep its cores from others.

    Raises LakehouseError if Spark's process ends while it starts.
    """
    properties = spark_conf(settings)
    if SparkContext._active_spark_context is None:
        os.environ.update(submit_environment(settings))
        (settings.home / "spark").mkdir(parents=True, exist_ok=True)
        (settings.home / "logs").mkdir(exist_ok=True)
        borrows = may_borrow and is_local(settings)
        try:
            gateway = _borrowed(lasting := _lasting(settings), inherited, settings) if borrows else None
            if gateway:  # it lasts, and so does the code that it generates
                properties = lasting | {ADAPTIVE: properties.get(ADAPTIVE, "true")}
            gateway = gateway or _launched(properties, inherited, settings)
        except EndedError as error:
            raise LakehouseError(_how_it_ended(error.code, settings)) from error
        ctrl_c = signal.getsignal(signal.SIGINT)
        _begin_context(gateway, properties)
        signal.signal(signal.SIGINT, ctrl_c)  # Spark's handler would call the JVM, even in the middle of another call
    session = SparkSession.builder.config(map={**properties}).getOrCreate()
    register(session)
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = lambda *_: None  # the original shows a stack trace when the JVM has ended
    return session


def _begin_context(gateway: JavaGateway, properties: Mapping[str, str]) -> None:
    """Begin the context of a new JVM; or take that of one that was lent before, with a session of our own in it."""
    sessions = gateway.jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getDefaultSession()
    if before.isEmpty():
        SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(properties.items())), gateway=gateway)
        return
    held = before.get()
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(held.sparkContext())
    SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    held.sharedState().cacheManager().clearCache()
    gateway.jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # a table may have been made anew in its place
    sessions.setDefaultSession(held.newSession())


def _lasting(settings: Settings) -> dict[str, str]:
    """The properties of a JVM that is lent. It writes no class archive, and a short run has its own for its session."""
    properties = spark_conf(settings, keep_classes=False)
    return {name: value for name, value in properties.items() if SHORT_RUN.get(name) != value}


def _borrowed(properties: Mapping[str, str], inherited: Sequence[int], settings: Settings) -> JavaGateway | None:
    """The gateway of the engine's JVM, which it starts if it has none that fits; None if there is none to borrow."""
    environment, where = _environment_of_jvm(), str(Path.cwd())
    lasting = {name: value for name, value in environment.items() if not OF_ONE_COMMAND.match(name)}
    fit = json.dumps([properties, lasting, where])
    with _submission(properties, settings) as command:
        wanted = {
            "fit": hashlib.sha256(fit.encode()).hexdigest(),
            "heap": _bytes(properties["spark.driver.memory"]) or _bytes(settings.spark.memory),
            "command": command,
            "environment": environment,
            "log": str(_log(settings)),
            "folder": where,
        }
        loan = borrow(engine_folder(settings), wanted, inherited)
    try:
        return loan and _connected(loan.gateway, loan)
    except Py4JError as error:
        raise EndedError(loan.wait() if loan else 1) from error


def _launched(properties: Mapping[str, str], inherited: Sequence[int], settings: Settings) -> JavaGateway:
    """The gateway of a JVM of our own. Raises EndedError if it ends while it starts.

    PySpark would start it in the same way, but keep its process to itself until it has answered.
    """
    with _submission(properties, settings) as command, TemporaryDirectory() as folder:
        answer = Path(folder, "gateway")
        process: subprocess.Popen[bytes] | None = None
        try:
            with _interrupts_later():
                process = launch(
                    command,
                    _environment_of_jvm(),
                    answer=answer,
                    log=_log(settings),
                    inherited=inherited,
                    in_child=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
                )
            return _connected(gateway_of(process, answer), process)
        except BaseException as error:
            if process is None:
                raise
            if isinstance(error, Exception) and (code := process.poll()) is not None:
                raise EndedError(code) from error
            process.kill()  # without the folder in which it should answer, it would run forever
            process.wait()
            raise


@contextmanager
def _submission(properties: Mapping[str, str], settings: Settings) -> Iterator[list[str]]:
    """The command that starts the JVM, within the block. Its arguments show none of the user's properties."""
    own = settings.spark.conf
    arguments = [f"--conf={name}={value}" for name, value in properties.items() if name not in own]
    defaults, given = ["--load-spark-defaults"], shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with properties_file({name: value for name, value in properties.items() if name in own}) as file:
        yield [f"{SPARK_HOME}/bin/spark-submit", *arguments, "--properties-file", file, *defaults, *given]


def _environment_of_jvm() -> dict[str, str]:
    """The environment without our settings, which may be secrets."""
    hidden = variables()
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _connected(found: Gateway, process: subprocess.Popen[bytes] | Loan) -> JavaGateway:
    os.environ.update(PYSPARK_GATEWAY_PORT=str(found.port), PYSPARK_GATEWAY_SECRET=found.secret)
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)
    gateway.proc = process
    return gateway


def _log(settings: Settings) -> Path:
    return settings.home / "logs" / "spark.log"


def _bytes(size: str) -> int:
    """The bytes of a size in Java's or Spark's form, such as 3g; 0 if it has another one."""
    found = re.fullmatch(r"(\d+)([kmgt])b?", size.strip().lower())
    return int(found[1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[found[2]] if found else 0


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Let signals interrupt only after the block, in which a process that starts could get lost."""
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


@contextmanager
def properties_file(properties: Mapping[str, str]) -> Iterator[str]:
    """The path of a Java properties file that only this user can read. It exists while the block runs."""
    with NamedTemporaryFile("w", suffix=".conf") as file:
        for name, value in properties.items():
            print(name, value.replace("\\", "\\\\").replace("\n", "\\n"), sep="=", file=file)
        file.flush()
        yield file.name


def end_of_spark(settings: Settings, *, within: float = 0) -> str | None:
    """One line that says how the JVM of this process ended; None if it is still running after `within` seconds."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            return _how_it_ended(process.wait(within), settings)
    return None


def _how_it_ended(code: int, settings: Settings) -> str:
    where = f"LAKEHOUSE_SPARK__MEMORY is {settings.spark.memory}; see Spark's log, {settings.home}/logs/spark.log"
    if code == OUT_OF_MEMORY:
        return f"Spark ran out of memory, and its process has ended: {where}"
    if code == -signal.SIGKILL:
        return f"Spark's process was killed by SIGKILL, as the kernel does when the machine has no memory left: {where}"
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"Spark's process has ended {how}: {where}"


def submit_environment(settings: Settings) -> dict[str, str]:
    """The environment variables that make Spark use the Java and Python of this environment."""
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_local(settings) else {}
    python = str(Path(sysconfig.get_path("scripts"), "spark-python"))
    return {
        **local,
        "SPARK_HOME": SPARK_HOME,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "JAVA_HOME": str(java_home()),
    }


def is_local(settings: Settings) -> bool:
    """Whether tasks run in the driver, with its class path."""
    return settings.spark.conf.get("spark.master", settings.spark.master).partition("[")[0] == "local"


def drop_idle_callbacks() -> None:
    """Close the connections by which Spark calls Python functions. Call it only while no stream runs.

    Each run of a stream calls from its own thread. After the run, py4j still keeps that thread's connection, and a
    Python thread for it.
    """
    gateway = SparkContext._gateway
    assert gateway is not None
    server: Any = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    server.resetCallbackClient(server.getCallbackClient().getAddress(), gateway._python_proxy_port)


def stop_spark(*, is_well: bool = False) -> None:
    """End the JVM, whatever it is doing, and wait until it is gone.

    If this process `is_well`, a JVM that was borrowed is given back, and one that was started to write a class archive
    does so: 210 MB, in about 15 seconds.
    """
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return
    context = SparkContext._active_spark_context
    if isinstance(process, Loan):
        process.give_back(is_well=is_well and context is not None and _is_left_clean(context))
        return
    keeping = is_well and any("ArchiveClassesAtExit" in argument for argument in process.args)
    if context is not None:
        context._accumulatorServer.shutdown()
    process.stdin.close()  # the JVM ends when its standard input does
    with spinner("Spark archives its classes, to start faster next time") if keeping else nullcontext():
        try:
            process.wait(timeout=60 if keeping else 2)
        except subprocess.TimeoutExpired:
            keeping = False
            process.kill()
            process.wait()
    settle(PROGRAM, keep=keeping)


def _is_left_clean(context: SparkContext) -> bool:
    """Whether no stream and no job runs, and all that this process has left in the JVM could be removed in time."""
    cleaned: list[bool] = []
    cleaning = threading.Thread(target=lambda: cleaned.append(_clean(context)), daemon=True)
    cleaning.start()
    cleaning.join(CLEANING)
    return cleaned == [True]


def _clean(context: SparkContext) -> bool:
    try:
        jvm: Any = context._jvm
        session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
        jobs = session.sparkContext().dagScheduler().activeJobs()  # what the status tracker knows is a moment old
        if not (jobs.isEmpty() and session.sharedState().activeStreamingQueries().isEmpty()):
            return False
        session.sharedState().cacheManager().clearCache()
        drop_idle_callbacks()
        # The JVM keeps each object that this process has got, until it says that it needs it no more.
        lasting = jvm.java.util.ArrayList()
        for name in ("t", "j", "GATEWAY_SERVER"):
            lasting.add(name)
        gateway: Any = context._gateway
        JavaObject("GATEWAY_SERVER", gateway._gateway_client).getGateway().getBindings().keySet().retainAll(lasting)
    except Exception:  # whatever it is, the JVM is not clean
        return False
    return True
