from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.tables.stored import dataset_of


def test_a_struct_in_a_struct_of_a_large_file(tmp_path: Path) -> None:
    """Arrow cuts its row group into slices of 131,072 rows."""
    numbers = range(140_000)
    write_deltalake(str(tmp_path), pa.table({"user": [{"sequence": {"entry_id": number}} for number in numbers]}))
    rows = duckdb.from_arrow(dataset_of(DeltaTable(str(tmp_path))))
    assert rows.aggregate('sum("user".sequence.entry_id)').fetchall() == [(sum(numbers),)]
