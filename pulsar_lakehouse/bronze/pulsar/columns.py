"""The columns of a message, for Arrow and for Spark."""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
ARROW_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "ledger_id": pa.int64(),
        "entry_id": pa.int64(),
        "batch_index": pa.int32(),
        "key": pa.string(),
        "payload": pa.binary(),
        "properties": PROPERTIES,
        "event_time": TIMESTAMP,
        "publish_time": TIMESTAMP,
        "producer": pa.string(),
        "schema_version": pa.int64(),
    }
)
"""One row per message. (topic, partition, ledger_id, entry_id, batch_index) is unique. NULL payloads are tombstones."""

_IN_SPARK = {
    pa.string(): "STRING",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.binary(): "BINARY",
    PROPERTIES: "MAP<STRING, STRING>",
    TIMESTAMP: "TIMESTAMP",
}
SCHEMA = ", ".join(f"{column.name} {_IN_SPARK[column.type]}" for column in ARROW_SCHEMA)
"""The same for Spark, as DDL."""
