"""What a message gives: the columns, or the fields of structs, that have the value it says and not an earlier one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from pulsar_lakehouse.silver.entity import UNAVAILABLE, Entity
from pulsar_lakehouse.tables.declared import quoted


@dataclass(frozen=True)
class Value:
    """What a message gives or does not give as a whole: a column, or a field of a struct that ignores NULL."""

    path: tuple[str, ...]

    @property
    def name(self) -> str:
        """As `given` has it, such as `city` or `address.city`."""
        return ".".join(map(quoted, self.path))

    @property
    def column(self) -> Column:
        return reduce(Column.__getitem__, self.path[1:], F.col(self.path[0]))

    @property
    def own(self) -> Column:
        """Over the columns of a version and `given`: a struct of the value, also if that is NULL; NULL if not given."""
        names = (Value(self.path[:length]).name for length in range(1, len(self.path) + 1))
        # A struct may be given by its own name: it was so before its fields were given one by one.
        is_given = reduce(Column.__or__, (F.array_contains("given", name) for name in names))
        return F.when(is_given, F.struct(self.column.alias("value")))


def given_by(entity: Entity) -> Column:
    """Over the columns of a message and UNAVAILABLE: the names of what it gives.

    A column that ignores NULL is not given as NULL, and one whose SQL uses an unavailable field is not given at all.
    """
    return F.array_compact(F.array(*(F.when(_is_given(each, entity), each.name) for each in values_of(entity))))


def _is_given(value: Value, entity: Entity) -> Column:
    column = value.path[0]
    is_there = value.column.isNotNull() if column in entity.ignoring else F.lit(True)
    left_out = (F.array_contains(UNAVAILABLE, name) for name in entity.may_lack.get(column, ()))
    return reduce(Column.__and__, (~F.coalesce(each, F.lit(False)) for each in left_out), is_there)


def values_of(entity: Entity) -> list[Value]:
    """All that a message can give or not. Needs Spark."""
    schema = entity.decoding.schema
    return [value for name in entity.values for value in _within((name,), schema[name].dataType, entity)]


def columns_from(given: str, entity: Entity) -> dict[str, Column]:
    """The columns but the key, from one that has the `own` of each value by its name. Needs Spark."""
    schema = entity.decoding.schema
    return {name: _made((name,), schema[name].dataType, entity, given) for name in entity.values}


def _made(path: tuple[str, ...], kind: DataType, entity: Entity, given: str) -> Column:
    """A struct whose fields are given one by one is NULL if they all are."""
    values = [F.col(given)[each.name]["value"] for each in _within(path, kind, entity)]
    if not (fields := _fields(path, kind, entity)):
        return values[0]
    made = (_made((*path, each.name), each.dataType, entity, given).alias(each.name) for each in fields)
    return F.when(reduce(Column.__or__, (value.isNotNull() for value in values)), F.struct(*made))


def _within(path: tuple[str, ...], kind: DataType, entity: Entity) -> Iterator[Value]:
    if not (fields := _fields(path, kind, entity)):
        yield Value(path)
    for each in fields:
        yield from _within((*path, each.name), each.dataType, entity)


def _fields(path: tuple[str, ...], kind: DataType, entity: Entity) -> Sequence[StructField]:
    """The fields that are given one by one; empty if the column or field is given as a whole."""
    return kind.fields if isinstance(kind, StructType) and path[0] in entity.ignoring else ()
