"""Writes values of the lake and of Postgres as texts that are equal if the values are: mostly as Postgres does."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
from pyarrow import csv

from pulsar_lakehouse.limits import MIB

LONGEST_ROW = 32 * MIB
"""Bytes of a row of Postgres, as CSV."""

MONTH = 2_629_800
"""Seconds of a month in an interval, as Debezium counts them: a twelfth of 365.25 days."""
MICROSECONDS = f"""trunc(1000000 * (extract(year FROM {{0}}) * 12 * {MONTH} + extract(month FROM {{0}}) * {MONTH}
    + extract(day FROM {{0}}) * 86400 + extract(hour FROM {{0}}) * 3600 + extract(minute FROM {{0}}) * 60
    + extract(second FROM {{0}})))::bigint"""
"""An interval as Debezium writes it by default."""
OF_DAY = "trunc(1000000 * extract(epoch FROM {0}))::bigint"
"""A time of day as Debezium writes it."""
JSON = ("json", "jsonb")
"""Types whose texts can differ though the values are equal."""
SESSION = """SET TRANSACTION READ ONLY; SET LOCAL TIME ZONE 'UTC'; SET LOCAL datestyle = 'ISO';
    SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = 'hex'; SET LOCAL row_security = off"""
"""How Postgres is to write. If it hid rows by its row-level security, it fails instead."""
MACROS = """
    CREATE MACRO plain(x) AS CASE WHEN contains(x, '.') THEN rtrim(rtrim(x, '0'), '.') ELSE x END;
    CREATE MACRO era(x) AS CASE WHEN contains(x, ' (BC)') THEN replace(x, ' (BC)', '') || ' BC' ELSE x END;
"""
"""What the SQL of `there` and `here` uses in DuckDB."""


@dataclass(frozen=True)
class Texts:
    """SQL in which `{0}` stands for a value."""

    asked: str
    """Of Postgres, for its value."""
    there: str
    """Of DuckDB, for the text that Postgres answers."""
    here: str
    """Of DuckDB, for the lake's value."""


def texts_of(kind: pa.DataType, theirs: str) -> Texts | None:
    """How a column of the lake is compared with one that has this type in Postgres; None if it can't be."""
    match kind:
        case _ if pa.types.is_list(kind):
            return _of_lists(kind.value_type, theirs)
        case _ if pa.types.is_nested(kind):
            return None
        case _ if pa.types.is_boolean(kind):
            return Texts("{0}::text", "{0}", "{0}::VARCHAR")
        case _ if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            times = {"interval": MICROSECONDS, "time without time zone": OF_DAY, "money": "{0}::numeric"}
            return Texts(times.get(theirs, "{0}"), "plain({0})", "plain({0}::VARCHAR)")
        case _ if pa.types.is_floating(kind):
            as_floats = (
                f"coalesce(TRY_CAST({{0}} AS {'FLOAT' if theirs == 'real' else 'DOUBLE'})::VARCHAR, {{0}}::VARCHAR)"
            )
            return Texts("{0}", as_floats, as_floats)
        case _ if pa.types.is_timestamp(kind):
            return Texts("{0}", "replace({0}, '+00', '')", "era(({0}::TIMESTAMPTZ AT TIME ZONE 'UTC')::VARCHAR)")
        case _ if pa.types.is_date(kind):
            return Texts("{0}", "{0}", "era({0}::VARCHAR)")
        case _ if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return Texts("{0}", "{0}", r"'\x' || lower(hex({0}))")
    return Texts("{0}", "{0}", "{0}::VARCHAR")


def _of_lists(kind: pa.DataType, theirs: str) -> Texts | None:
    """As JSON arrays of the texts of their values."""
    of_value = texts_of(kind, theirs.removesuffix("[]"))
    if of_value is None or not theirs.endswith("[]"):
        return None
    texts = "from_json({0}, '[\"VARCHAR\"]')"
    return Texts(
        "to_json({0}::text[])",
        f"to_json(list_transform({texts}, lambda x: {of_value.there.format('x')}))::VARCHAR",
        f"to_json(list_transform({{0}}, lambda x: {of_value.here.format('x')}))::VARCHAR",
    )


def same_json(one: str, other: str) -> bool:
    def value(text: str) -> Any:
        return json.loads(text, parse_int=_number, parse_float=_number)

    try:
        return bool(value(one) == value(other))
    except (ValueError, RecursionError):
        return False


def _number(digits: str) -> tuple[Decimal]:
    """A number that is not equal to a boolean."""
    return (Decimal(digits),)


@contextmanager
def texts_in(copy: psycopg.Copy, columns: Iterable[str]) -> Iterator[csv.CSVStreamingReader]:
    """The rows that Postgres sends as CSV, in batches of texts. Raises psycopg.Error if it does not send all."""
    sent = _Sent(copy)
    try:
        yield csv.open_csv(
            pa.PythonFile(sent, mode="r"),
            read_options=csv.ReadOptions(block_size=LONGEST_ROW),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()),
                **{"strings_can_be_null": True, "quoted_strings_can_be_null": False, "null_values": [""]},
            ),
        )
    except duckdb.Error:
        if sent.errors:
            raise sent.errors.pop() from None
        raise


class _Sent:
    """What Postgres sends, as a file."""

    closed = False

    def __init__(self, copy: psycopg.Copy) -> None:
        self.copy, self.held = copy, bytearray()
        self.errors: list[psycopg.Error] = []
        """Why it ended too early. Arrow and DuckDB tell it with a stack trace."""

    def read(self, size: int) -> bytes:
        try:
            while len(self.held) < size and (row := self.copy.read()):
                self.held += row
        except psycopg.Error as error:
            self.errors.append(error)
            raise
        given = bytes(self.held[:size])
        del self.held[:size]
        return given
