"""Columns as a list: what each stands for, and what is refused."""

from collections.abc import Mapping

import pytest
from pyspark.sql.types import StructType

from pulsar_lakehouse.contracts.decoding import Decoding
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.errors import ConfigurationError

STORES = Topic(name="stores", record="Store", fields=StructType([]))


def test_a_name_stands_for_itself() -> None:
    text = """
        id, city,  -- where it is
        nullif(closedAt, -1) AS closed, concat(a, ',', b)[0] || ', (' as label, `open at` AS open, `a b`
    """
    assert Decoding(topic=STORES, columns=text).columns == {
        "id": "id",
        "city": "city",
        "closed": "nullif(closedAt, -1)",
        "label": "concat(a, ',', b)[0] || ', ('",
        "open": "`open at`",
        "a b": "`a b`",
    }


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ("", "columns is empty: must have at least one column"),
        ({}, "columns is empty: must have at least one column"),
        ("id, nullif(closedAt, -1)", r"columns: nullif\(closedAt, -1\): must be a name, or SQL AS name"),
        ("id,, city", "columns: no column follows the comma after `id`"),
        ("id, city,", "columns: no column follows the comma after `city`"),
        ("id city", r"columns: id city: must be a name, or SQL AS name: is a comma missing before `city`\?"),
        ("id, upper(city AS city", r"columns: id, upper\(city AS city: the `\(` after `upper` is never closed"),
        ("id, 1", "columns: 1: must be a name, or SQL AS name"),
        ("id, city, town AS CITY", "column CITY is declared twice: give each a name of its own"),
        ({"id": "id", "": "city"}, "column '': city: must not be empty"),
        ({"id": " "}, "column id:  : must not be empty"),
        ("id, 'open", "columns: id, 'open: the ' before `open` is never closed"),
    ],
)
def test_what_is_no_list_of_columns_is_refused(columns: Mapping[str, str] | str, line: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^stores: {line}"):
        Decoding(topic=STORES, columns=columns)
