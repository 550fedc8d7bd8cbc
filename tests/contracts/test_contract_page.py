"""What docs/contract.md says of each message is what happens with it."""

import re
from typing import Any

from pyspark.sql import SparkSession

from pulsar_lakehouse.bronze.landing import bronze_table
from pulsar_lakehouse.contracts.decoding import explain
from pulsar_lakehouse.silver.merge import decode_changes
from tests.lake import bronze_row
from tests.messages import message
from tests.test_docs import ROOT, blocks

ROW = re.compile(r"^\| (none|`[^`]*`) \| (none|`[^`]+`) \| (taken|`[^`]+`) \|$", re.MULTILINE)


def test_each_message_has_the_reason_that_the_page_gives(spark: SparkSession) -> None:
    declared: dict[str, Any] = {}
    _, code, *_ = blocks(ROOT / "docs" / "own-topics.md", "python")
    exec(code, declared)
    stores = declared["STORES"]
    said = [
        [None if cell in ("none", "taken") else cell.strip("`") for cell in row]
        for row in ROW.findall((ROOT / "docs" / "contract.md").read_text())
    ]
    assert len(said) == 26
    rows = [
        bronze_row(message("stores", payload and payload.encode(), key=key, place=place))
        for place, (key, payload, _) in enumerate(said)
    ]
    messages = spark.createDataFrame(rows, bronze_table(stores.topic).ddl)
    explained = messages.transform(decode_changes, entity=stores).transform(explain, decoding=stores.decoding)
    reasons = [row.reason for row in explained.orderBy("message.position").collect()]
    assert [[*row, reason] for (*row, _), reason in zip(said, reasons, strict=True)] == said
