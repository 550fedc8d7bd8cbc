from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.tables.stored import dataset_of


def test_a_struct_in_a_struct_of_a_large_file(tmp_path: Path) -> None:
    """Arrow cuts its row group into slices of 131,072 rows."""
    numbers = range(140_000)
    write_deltalake(str(tmp_path), pa.table({"user": [{"sequence": {"entry_id": number}} for number in numbers]}))
    rows = duckdb.from_arrow(dataset_of(DeltaTable(str(tmp_path))))
    assert rows.aggregate('sum("user".sequence.entry_id)').fetchall() == [(sum(numbers),)]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT id FROM stores WHERE city = 'Ulm'", [(1,)]),
        ("SELECT id FROM stores WHERE city IN ('Ulm', 'Rom') ORDER BY id", [(1,), (2,)]),
        ("SELECT city FROM stores WHERE city = 'Ulm' OR id = 3 ORDER BY city", [("Bern",), ("Ulm",)]),
        ("SELECT id FROM stores WHERE place.country = 'IT'", [(2,)]),
    ],
)
def test_texts_of_a_table_that_delta_rs_has_merged_can_be_compared(
    tmp_path: Path, sql: str, found: list[tuple[int]]
) -> None:
    """It writes them as string_view, which Arrow can't compare with the bounds of row groups."""
    countries = {"Ulm": "DE", "Rom": "IT", "Bern": "CH"}
    rows = [{"id": id, "city": city, "place": {"country": countries[city]}} for id, city in enumerate(countries, 1)]
    write_deltalake(str(tmp_path), pa.Table.from_pylist(rows[:2]))
    merging = DeltaTable(str(tmp_path)).merge(pa.Table.from_pylist(rows[1:]), "new.id = held.id", "new", "held")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    stores = dataset_of(DeltaTable(str(tmp_path)))
    assert duckdb.connect().register("stores", stores).execute(sql).fetchall() == found
