"""Two versions of a table, or two tables, row by row."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.inspection.comparison import ONLY_HERE, ONLY_THERE, Comparison, Difference
from pulsar_lakehouse.inspection.differences import Side, compare_versions
from pulsar_lakehouse.settings import Settings, load_settings

STORE = pa.struct([("city", pa.string()), ("size", pa.int32())])
COLUMNS = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("store", STORE)])
SALES: list[dict[str, object]] = [
    {"id": 1, "price": "2.50", "store": {"city": "Berlin", "size": 1}},
    {"id": 2, "price": "9.00", "store": {"city": "Porto", "size": 2}},
    {"id": 3, "price": None, "store": None},
    {"id": 4, "price": "1.00", "store": {"city": None, "size": 4}},
]
LATER: list[dict[str, object]] = [
    {"id": 1, "price": "2.50", "store": {"city": "Berlin", "size": 1}},
    {"id": 2, "price": "9.50", "store": {"city": "Lisboa", "size": 2}},
    {"id": 4, "price": "1.00", "store": {"city": "Oslo", "size": 4}},
    {"id": 5, "price": "1.00", "store": None},
]


def write(project: Settings, name: str, rows: list[dict[str, object]], columns: pa.Schema = COLUMNS) -> None:
    texts = pa.schema([each.with_type(pa.string()) if pa.types.is_decimal(each.type) else each for each in columns])
    write_deltalake(
        project.table_path(name),
        pa.Table.from_pylist(rows, texts).cast(columns),
        mode="overwrite",
        schema_mode="overwrite",
    )


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    found = load_settings(home=tmp_path)
    write(found, "gold.sales", SALES)
    write(found, "gold.sales", LATER)
    return found


BEFORE, NOW = Side(table="gold.sales", version=0), Side(table="gold.sales")


def test_two_versions_differ_in_rows_and_in_values_of_fields(project: Settings) -> None:
    assert compare_versions(project, BEFORE, NOW, ("id",)) == Comparison(
        version=1,
        columns=("id", "price", "store.city", "store.size"),
        left_out={ONLY_HERE: (), ONLY_THERE: (), "of another type": ()},
        equal=1,
        differ=2,
        only_here=1,
        only_there=1,
        differences=(
            Difference(what="price", rows=1, examples=(("2", "9.00", "9.50"),)),
            Difference(what="store.city", rows=2, examples=(("2", "Porto", "Lisboa"), ("4", None, "Oslo"))),
            Difference(what=ONLY_HERE, rows=1, examples=(("3", "a row", "no row"),)),
            Difference(what=ONLY_THERE, rows=1, examples=(("5", "no row", "a row"),)),
        ),
    )


def test_a_version_equals_itself(project: Settings) -> None:
    found = compare_versions(project, NOW, Side(table="gold.sales", version=1), ("id",))
    assert (found.equal, found.differ, found.only_here, found.only_there, found.differences) == (4, 0, 0, 0, ())


def test_columns_that_one_side_lacks_or_has_otherwise_are_told(project: Settings) -> None:
    columns = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("town", pa.string())])
    write(project, "gold.others", [{"id": 1, "price": 2.5, "town": "Berlin"}], columns)
    found = compare_versions(project, NOW, Side(table="gold.others"), ("id",))
    assert found.columns == ("id",)
    assert found.left_out == {
        ONLY_HERE: ("store.city", "store.size"),
        ONLY_THERE: ("town",),
        "of another type": ("price",),
    }


@pytest.mark.parametrize(
    ("side", "keys", "line"),
    [
        (NOW, ("uid",), r"gold\.sales@0: has no column uid to compare by: name others with --by"),
        (NOW, ("price",), r"gold\.sales: several rows have the same price: name other columns with --by"),
        (Side(table="gold.sales", version=9), ("id",), r"gold\.sales@9: can't be read: .*"),
        (Side(table="gold.none"), ("id",), r"gold\.none is not there"),
    ],
)
def test_what_can_not_be_compared_is_one_line(project: Settings, side: Side, keys: tuple[str, ...], line: str) -> None:
    with pytest.raises((ConfigurationError, LakehouseError), match=f"^{line}$"):
        compare_versions(project, BEFORE, side, keys)


def test_a_key_may_have_any_name(project: Settings) -> None:
    columns = pa.schema([("h0", pa.int64()), ("city", pa.string())])
    write(project, "gold.cells", [{"h0": 1, "city": "Berlin"}], columns)
    write(project, "gold.cells", [{"h0": 1, "city": "Porto"}], columns)
    found = compare_versions(project, Side(table="gold.cells", version=0), Side(table="gold.cells"), ("h0",))
    assert found.differences == (Difference(what="city", rows=1, examples=(("1", "Berlin", "Porto"),)),)
