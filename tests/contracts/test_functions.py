"""A wrong declaration of a function, or a wrong call, is one line that says what would be right."""

from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_lakehouse import function
from pulsar_lakehouse.contracts.functions import wrong_calls
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.spark.functions import Function, declare


def site(email: Any) -> Any:
    return email


def declared(call: Any = site, arguments: Any = "email STRING", **options: Any) -> Function:
    return function(arguments, **{"returns": "STRING", **options})(call)


def test_it_can_be_called_from_python() -> None:
    assert declared()("a@b") == declared()(email="a@b") == "a@b"


async def waits(email: Any) -> Any:
    return email


def upper(email: Any) -> Any:
    return email


def map(email: Any) -> Any:
    return email


def decimal(email: Any) -> Any:
    return email


def Site(email: Any) -> Any:
    return email


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"call": 3}, "function 3: must be a function that is written with def"),
        ({"call": waits}, "function waits: must be a function that is written with def"),
        ({"call": upper}, "function upper: SQL uses this name: choose another"),
        ({"call": map}, "function map: SQL uses this name: choose another"),
        ({"call": decimal}, "function decimal: SQL uses this name: choose another"),
        ({"call": Site}, "function Site: must be named with lower-case letters, digits and _, after a letter"),
        ({"arguments": ""}, "function site: arguments: '' is no field: must be a name and a type"),
        ({"arguments": "email TEXTS"}, "function site: arguments: field email is TEXTS: must be one of"),
        ({"arguments": "a INT, b INT"}, "function site: arguments: a INT, b INT: it is def site(email: Any) -> Any"),
        (
            {"arguments": "m MAP<STRING, INT>", "aggregate": True},
            "function site: arguments: m MAP<STRING, INT>: rows of",
        ),
        ({"returns": "TEXT"}, "function site: returns: TEXT: must be one of BOOLEAN, INT"),
        ({"returns": "INT, b INT"}, "function site: returns: INT, b INT: must be one type, such as STRING"),
        ({"returns": "ARRAY<STRUCT<a INT>"}, "function site: returns: the `<` after `ARRAY` is never closed"),
        ({"timeout": "soon"}, "function site: timeout: soon: must be a time such as 5 seconds or 1 minute"),
        ({"timeout": "0 seconds"}, "function site: timeout: 0 seconds: must be a time such as"),
        ({"arguments": site}, 'function: needs the types of its arguments and of its values: write @function("email'),
    ],
)
def test_a_wrong_declaration_is_told(given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigurationError) as told:
        declared(**given)
    assert str(told.value)[: len(line)] == line, told.value


@pytest.fixture
def functions() -> Iterator[None]:
    def spread(price: Any) -> Any:
        return price

    def drawn(price: Any) -> Any:
        return price

    declare(
        [
            declared(),
            declared(spread, "price DOUBLE", aggregate=True),
            declared(drawn, "price DOUBLE", deterministic=False),
        ]
    )
    yield
    declare([])


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize(
    ("sql", "lines"),
    [
        ("upper(site(email))", []),
        ("site(email, 2)", ["site(email, 2): site takes 1, email, and not 2 arguments"]),
        (
            "site(email -- of a person\n, 2)",
            ["site(email -- of a person , 2): site takes 1, email, and not 2 arguments"],
        ),
        ("site()", ["site(): site takes 1, email, and not 0 arguments"]),
        ("spread(price)", ["spread(price): spread is an aggregate, which only the SELECT of a SQL table can have"]),
        ("site(drawn(1))", ["drawn(1): drawn is declared with deterministic=False: it is kept"]),
    ],
)
def test_a_wrong_call_is_told(sql: str, lines: list[str]) -> None:
    assert list(wrong_calls(sql, needs="it is kept")) == lines
