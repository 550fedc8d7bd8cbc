from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pulsar_lakehouse.bronze.pulsar.options import NoAnswerError, PulsarSourceError
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent

IN_THE_JVM = """An error occurred while calling o1.execute.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.Scheduler.run(Scheduler.scala:1)
Caused by: java.io.IOException: first
\tat java.base/java.io.File.open(File.java:1)
Caused by: java.io.IOException: innermost
\tat java.base/java.io.File.open(File.java:2)
"""
FROM_THE_JVM = """Traceback (most recent call last):
  File "merge.py", line 1, in merge_batch
py4j.protocol.Py4JJavaError: An error occurred while calling o1.execute.
: org.apache.spark.sql.delta.DeltaRuntimeException: [DELTA_MERGE] The MERGE failed.
\tat org.apache.spark.sql.delta.DeltaErrors.merge(DeltaErrors.scala:1)
"""
IN_PYTHON = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "enrich.py", line 1, in enrich_batch
RuntimeError: power cut

=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (IN_THE_JVM, "java.io.IOException: innermost"),
        (FROM_THE_JVM, "org.apache.spark.sql.delta.DeltaRuntimeException: [DELTA_MERGE] The MERGE failed."),
        (IN_PYTHON, "RuntimeError: power cut"),
        ("pulsar_lakehouse.errors.BusyError: enriched_orders: wait\n\tat Task.run", "enriched_orders: wait"),
        (
            "ConnectionRefusedError: [Errno 111] Connection refused\nbronze.pulsar.options.NoAnswerError: x: no answer",
            "x: no answer",
        ),
        (
            "bronze.pulsar.options.PulsarSourceError: option tokenFile: /run/token: No such file or directory",
            "pulsar.token_file: /run/token: No such file or directory",
        ),
        (
            "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache.Worker(1)\n"
            "Caused by: java.net.SocketTimeoutException: Accept timed out",
            "a Python process of Spark did not start in time: is the machine busy, or its memory used up?",
        ),
        ("\nwhat a pity\nthe rest", "what a pity"),
        ("x/orders: no such topic", "x/orders: no such topic: `lakehouse topics create` makes the declared ones"),
        ("", "RuntimeError"),
        ("java.io.IOException: No space left on device", "no space left on the disk"),
        (
            "Caused by: org.apache.hadoop.fs.ChecksumException: Checksum error: file:/x/gold/notes/day=2026-01-01"
            "/part-1.parquet at 512 exp: 1 got: 2",
            "gold.notes: day=2026-01-01/part-1.parquet is damaged (its checksums differ): "
            "`lakehouse rebuild gold.notes --approve` makes the table again",
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///x/bronze/notes/part-1.parquet. "
            "SQLSTATE: KD001\nCaused by: java.io.IOException: FAILED_TO_UNCOMPRESS(5)",
            "bronze.notes: part-1.parquet can't be read (java.io.IOException: FAILED_TO_UNCOMPRESS(5)): "
            "`lakehouse check bronze.notes` says what to do",
        ),
        (
            "_internal.DeltaError: gold.notes: Generic LocalFileSystem error: Unable to write: No "
            "space left on device (os error 28)",
            "gold.notes: no space left on the disk",
        ),
        (
            "_internal.DeltaError: gold.notes: Generic error\n    \x1b[31m↳\x1b[0m Unable to copy data to file\n"
            "     \x1b[31m↳\x1b[0m Input/output error (os error 5)\n",
            "gold.notes: Generic error: Unable to copy data to file: Input/output error (os error 5)",
        ),
        (
            "_internal.DeltaError: gold.notes: LocalFileSystem error: Permission denied (os error 13)",
            "not writable: gold.notes",
        ),
        ("_internal.DeltaError: gold.notes: Cast error: no number", "gold.notes: Cast error: no number"),
        (
            "Kernel error\n Error performing GET http://minio:9000/lake/w/gold in 4 ms - 403\n"
            "<Error><Code>SignatureDoesNotMatch</Code><Message>The signature is wrong.</Message></Error>",
            "the object store http://minio:9000 refuses: SignatureDoesNotMatch: The signature is wrong. (bucket lake)",
        ),
        (
            "Generic S3 error: Error performing PUT http://minio:9000/lake/w in 4 ms, after 4 retries",
            "the object store http://minio:9000 does not answer: try again later",
        ),
        (
            "java.net.ConnectException: software.amazon.awssdk.core.exception.SdkClientException: Unable to execute "
            "HTTP request: Connect to minio:9000 failed: Connection refused (SDK Attempt Count: 3)",
            "the object store does not answer: Connect to minio:9000 failed: Connection refused",
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Error while reading file file:///x/_delta_log/00002.json.  SQLSTATE",
            "/x/_delta_log/00002.json: torn, as by a power cut: see *After a power cut* in docs/operations.md",
        ),
        (
            "SparkException: Python worker exited unexpectedly (crashed)\nCaused by: java.io.EOFException",
            "a Python process of Spark was killed, perhaps because memory ran out",
        ),
    ],
)
def test_one_line_tells_why(text: str, line: str) -> None:
    assert cause_of(RuntimeError(text)) == line


@pytest.mark.parametrize(
    ("text", "permanent"),
    [
        ("pulsar_lakehouse.bronze.pulsar.options.PulsarSourceError: orders: no such topic", True),
        ("[DELTA_INVALID_PROTOCOL_VERSION] Unsupported", True),
        ("java.io.IOException: No space left on device", True),
        ("java.net.ConnectException: Connection refused", False),
        ("ConnectionRefusedError: [Errno 111] Connection refused", False),
        ("pulsar_lakehouse.errors.RefusedError: GET http://x: the token was refused", True),
        ("SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'a' … SQLSTATE: 22018", True),
        ("[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column … SQLSTATE: 42703", True),
        ("[DELTA_CONCURRENT_APPEND] … SQLSTATE: 2D521", False),
        ("AnalysisException: [BATCH_METADATA_NOT_FOUND] Unable to find batch x/offsets/1. SQLSTATE: 42K03", False),
        ("Error while reading file file:///x/_delta_log/00002.json.  SQLSTATE: KD001", True),
    ],
)
def test_what_another_try_would_meet_again(text: str, permanent: bool) -> None:
    assert is_permanent(RuntimeError(text)) == permanent


@pytest.mark.parametrize(("kind", "permanent"), [(NoAnswerError, False), (PulsarSourceError, True)])
def test_the_cause_of_a_task_that_fails_while_a_stream_writes(
    spark: SparkSession, tmp_path: Path, kind: type[PulsarSourceError], permanent: bool
) -> None:
    def fail(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise kind("x: no answer")

    table, copy = str(tmp_path / "table"), str(tmp_path / "copy")
    spark.range(1).write.format("delta").save(table)
    rows = spark.readStream.format("delta").load(table).mapInArrow(fail, "id BIGINT")
    query = rows.writeStream.format("delta").option("checkpointLocation", f"{copy}/checkpoint").start(copy)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    error = query.exception()
    assert error is not None
    assert (cause_of(error), is_permanent(error)) == ("x: no answer", permanent)
