"""Compares values whatever their type: Spark compares no maps."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def is_same(left: Column, right: Column, kind: DataType) -> Column:
    """Whether two values of a type are the same, or both are NULL. The order of a map's entries counts."""
    return _comparable(left, kind).eqNullSafe(_comparable(right, kind))


def _comparable(value: Column, kind: DataType) -> Column:
    """The value, in which each map is the array of its entries."""
    if not has_map(kind):
        return value
    match kind:
        case StructType():
            fields = (_comparable(value[field.name], field.dataType).alias(field.name) for field in kind)
            return F.when(value.isNotNull(), F.struct(*fields))
        case ArrayType():
            return F.transform(value, lambda item: _comparable(item, kind.elementType))
        case MapType():
            values = F.transform(F.map_values(value), lambda item: _comparable(item, kind.valueType))
            return F.when(value.isNotNull(), F.struct(F.map_keys(value), values))
    return value


def has_map(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(has_map(field.dataType) for field in kind)
        case ArrayType():
            return has_map(kind.elementType)
    return isinstance(kind, MapType)
