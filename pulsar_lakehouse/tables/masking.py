"""Masks rows in memory, before anything else reads them."""

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_lakehouse.access import MASK, below


def masked_batch(rows: pa.RecordBatch, paths: Collection[str]) -> pa.RecordBatch:
    columns = [
        _masked(column, below(paths, field.name)) for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=nullable(rows.schema)) if columns else rows


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema in which each column can be NULL, as those that are masked are."""
    return pa.schema([field.with_nullable(True) for field in schema])


def masked_row(row: dict[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """A row whose texts are MASK in these columns, and whose other values there are None."""
    return {name: _masked_value(value, below(paths, name)) for name, value in row.items()}


def _masked_value(value: Any, paths: Sequence[str]) -> Any:
    if not paths or value is None:
        return value
    if isinstance(value, dict) and all(paths):
        return masked_row(value, paths)
    return MASK if isinstance(value, str) else None


def _masked(column: pa.Array, paths: Sequence[str]) -> pa.Array:
    if not paths:
        return column
    kind = column.type
    if pa.types.is_struct(kind) and all(paths):
        fields = [field.with_nullable(True) for field in kind]
        # `flatten`, and not `field`, which leaves out that a whole struct is NULL, and where a slice of it begins.
        values = [_masked(each, below(paths, field.name)) for field, each in zip(fields, column.flatten(), strict=True)]
        typed = [each.cast(field.type) for field, each in zip(fields, values, strict=True)]
        return pa.StructArray.from_arrays(typed, fields=fields, mask=pc.is_null(column)).cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pc.if_else(pc.is_valid(column), pa.scalar(MASK), pa.scalar(None, pa.string())).cast(kind)
    return pa.nulls(len(column), kind)
