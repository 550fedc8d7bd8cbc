"""How an existing table follows its declaration: it gets the columns and properties that it lacks."""

from collections.abc import Iterator, Mapping

from pyspark.sql.types import ArrayType, StructType

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.tables.declared import EACH_TABLE, Table, sql_type

ColumnChange = tuple[tuple[str, ...], str | None, str | None]
"""The path of a column's name, its type in the table, and its declared type."""


def alterations(table: Table, schema: StructType, properties: Mapping[str, str]) -> Iterator[str]:
    """What to ALTER in a table that has this schema and these properties.

    Raises ConfigurationError if a column does not have the declared type, or its name in another case, or if a struct
    has a column that is not declared any more. Properties that an earlier version has not declared, it has not set.
    """
    columns = []
    for path, stored, declared in column_changes(schema, table.schema):
        if stored is None:
            columns.append(f"{'.'.join(f'`{name}`' for name in path)} {declared}")
        elif declared is not None:
            how = "name it as there" if declared.lower() == stored.lower() else "CAST it"
            raise ConfigurationError(
                f"{table.name}.{'.'.join(path)} is {stored} in the table, but declared as {declared}: {how}, or "
                "declare it under another name"
            )
        elif len(path) > 1:  # a MERGE can't write a struct that lacks a field
            raise ConfigurationError(
                f"{table.name}.{'.'.join(path)} is {stored} in the table, but not declared any more: declare it, or "
                "make the table again by `lakehouse rebuild`"
            )
    if columns:
        yield f"ADD COLUMNS ({', '.join(columns)})"
    declared_properties = {**EACH_TABLE, **table.properties}.items()
    lacking = {
        name: value for name, value in declared_properties if name.startswith("delta.") and name not in properties
    }
    if lacking:
        yield f"SET TBLPROPERTIES ({properties_in_sql(lacking)})"


def column_changes(held: StructType, declared: StructType, within: tuple[str, ...] = ()) -> Iterator[ColumnChange]:
    """The columns in which a table differs from its declaration, also within structs and arrays of them.

    Each is the path of its name, its type in the table and its declared one; None stands for the type of a column that
    is not there. For a name that differs in case, which to SQL is the same, there are both names in place of the types.
    """
    before, after = ({column.name.lower(): column for column in columns} for columns in (held, declared))
    for name in dict.fromkeys((*after, *before)):
        columns = before.get(name), after.get(name)
        was, becomes = (column and column.dataType for column in columns)
        names = dict.fromkeys(column.name for column in columns if column)
        path = (*within, next(iter(names)))
        if len(names) > 1:
            before_name, after_name = names
            yield path, f"`{before_name}`", f"`{after_name}`"
            continue
        if isinstance(was, ArrayType) and isinstance(becomes, ArrayType) and isinstance(was.elementType, StructType):
            was, becomes, path = was.elementType, becomes.elementType, (*path, "element")
        if isinstance(was, StructType) and isinstance(becomes, StructType):
            yield from column_changes(was, becomes, path)
            continue
        held_as, declared_as = (None if kind is None else sql_type(kind) for kind in (was, becomes))
        if held_as != declared_as:
            yield path, held_as, declared_as


def properties_in_sql(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = {_literal(value)}" for name, value in properties.items())


def _literal(text: str) -> str:
    """A text in SQL. A dollar sign, with which a variable would begin, is escaped too."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"
