"""Declares functions of a project's own: Python over Arrow arrays, which the SQL of declarations can call."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T
from sqlglot import TokenType, parse_one, tokenize
from sqlglot.errors import SqlglotError
from sqlglot.expressions import Anonymous

from pulsar_lakehouse.contracts.ddl import parse_fields
from pulsar_lakehouse.contracts.sources import seconds_of
from pulsar_lakehouse.contracts.types import in_spark, wrong_types
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.spark.comparing import has_map
from pulsar_lakehouse.spark.functions import Function, calls_in
from pulsar_lakehouse.tables.declared import NAME

EXAMPLE = '@function("email STRING", returns="STRING")'


def function(
    arguments: str, *, returns: str, timeout: str = "30 seconds", deterministic: bool = True, aggregate: bool = False
) -> Callable[[Callable[..., Any]], Function]:
    """A decorator for a Python function that SQL of this project can call by its name.

    It is called with a pyarrow Array for each argument, and gives one with a value for each row, which depends on the
    arguments of this row alone. Where it raises an error, it is called again for fewer and fewer rows, and the error is
    that of a row: in declarations, its message goes to quarantine.malformed.

    `arguments` are the names and types of the arguments, and `returns` is the type of the values, as in a topic's
    fields. An argument of another type is cast. With ARRAY<...>, `explode` makes many rows of one.
    A call may take `timeout`, such as "5 seconds" or "1 minute"; one that takes longer is stopped.
    Say `deterministic=False` if the same arguments do not always give the same value: then only SQL tables that are
    refreshed in full can call it, and checks that warn.
    With `aggregate`, it is called for each group in a SQL table, with the values of its rows in the order of the
    arguments, and gives one value.

    Raises ConfigurationError for what is no type, for a name that SQL has already, and for another number of arguments.
    """
    if not isinstance(arguments, str):
        raise ConfigurationError(f"function: needs the types of its arguments and of its values: write {EXAMPLE}")

    def declared(call: Callable[..., Any]) -> Function:
        name = getattr(call, "__name__", repr(call))
        if wrong := list(_mistakes(name, call, arguments, returns, timeout, aggregate=aggregate)):
            raise ConfigurationError("\n".join(f"function {name}: {line}" for line in wrong))
        return Function(
            name=name,
            arguments=_kinds(arguments),
            returns=_kinds(f"value {returns}")[0].dataType,
            call=call,
            timeout=seconds_of(timeout),
            is_deterministic=deterministic,
            is_aggregate=aggregate,
        )

    return declared


def _kinds(fields: str) -> T.StructType:
    kinds = in_spark(parse_fields(fields))
    assert isinstance(kinds, T.StructType)
    return kinds


def _mistakes(name: str, call: object, arguments: str, returns: str, timeout: str, *, aggregate: bool) -> Iterator[str]:
    if not inspect.isfunction(call) or inspect.iscoroutinefunction(call):
        yield "must be a function that is written with def"
        return
    if not NAME.fullmatch(name):
        yield "must be named with lower-case letters, digits and _, after a letter"
    elif is_of_sql(name):
        yield "SQL uses this name: choose another"
    yield from _wrong_arguments(name, call, arguments, aggregate=aggregate)
    yield from _wrong_type(returns)
    if not isinstance(timeout, str) or seconds_of(timeout) <= 0:
        yield f"timeout: {timeout}: must be a time such as 5 seconds or 1 minute"


def _wrong_arguments(name: str, call: Callable[..., Any], arguments: str, *, aggregate: bool) -> Iterator[str]:
    try:
        given = parse_fields(arguments)
    except ValueError as error:
        yield f"arguments: {error}"
        return
    yield from (f"arguments: {line}" for each in given for line in wrong_types(each.dataType, each.name))
    if aggregate and has_map(given):
        yield f"arguments: {arguments}: rows of a group come in the order of these, which a MAP has not"
    takes = inspect.signature(call)
    try:
        takes.bind(*given)
    except TypeError:
        yield f"arguments: {arguments}: it is def {name}{takes}"


def _wrong_type(returns: str) -> Iterator[str]:
    try:
        [kind, *more] = parse_fields(f"value {returns}")
    except ValueError as error:
        yield f"returns: {str(error).removeprefix('field value is ').replace('`value ', '`')}"
        return
    yield from (f"returns: {line}" for line in wrong_types(kind.dataType, returns))
    if more or not kind.nullable:
        yield f"returns: {returns}: must be one type, such as STRING"


def is_of_sql(name: str) -> bool:
    """Whether SQL has a function of this name, or another use of the word."""
    [token] = tokenize(name, dialect="spark")
    if token.token_type is not TokenType.VAR or name in F.__all__:
        return True
    try:
        return not isinstance(parse_one(f"{name}(a)", dialect="spark"), Anonymous)
    except (SqlglotError, IndexError):  # it needs other arguments
        return True


def wrong_calls(sql: str, *, needs: str = "", in_aggregates: bool = False) -> Iterator[str]:
    """What is wrong with the calls in declared SQL: a line for each mistake.

    `needs` says what needs the same value for the same arguments, if anything does.
    """
    shown = " ".join(sql.split())
    for call in calls_in(sql):
        function, names = call.function, call.function.arguments.names
        if len(call.arguments) != len(names):
            given = len(call.arguments)
            yield f"{shown}: {function.name} takes {len(names)}, {', '.join(names)}, and not {given} arguments"
        if function.is_aggregate and not in_aggregates:
            yield f"{shown}: {function.name} is an aggregate, which only the SELECT of a SQL table can have"
        if needs and not function.is_deterministic:
            yield f"{shown}: {function.name} is declared with deterministic=False: {needs}"
        for each in call.arguments:
            yield from wrong_calls(each, needs=needs, in_aggregates=in_aggregates)
