"""Calls of functions are found in SQL, whatever is around them, and a function is another one if its source is."""

from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import pytest

from pulsar_lakehouse import Enrichment, Topic, function
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import FIXED
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.spark.functions import DECLARED, calls_in, declare, with_calls
from tests.pipeline.projects import VISITORS, project


@function("email STRING", returns="STRING")
def domain(email: object) -> object:
    return email


@function("price DECIMAL(9, 2), pieces INT", returns="DOUBLE", aggregate=True)
def spread(price: object, pieces: object) -> object:
    return price


LOCK = Lock()


@function("email STRING", returns="STRING")
def locked(email: object) -> object:
    with LOCK:
        return email


@pytest.fixture(autouse=True)
def functions() -> Iterator[None]:
    declare([domain, spread])
    yield
    declare([])


@pytest.mark.parametrize(
    ("sql", "calls"),
    [
        ("domain(email)", [("domain", ["email"])]),
        ("upper( DOMAIN (email ) ) || Spread(a,b)", [("domain", ["email"]), ("spread", ["a", "b"])]),
        ("domain(concat(a, '),', b[0]))", [("domain", ["concat(a, '),', b[0])"])]),
        ("domain(domain(email))", [("domain", ["domain(email)"])]),
        ("domain /* the host */ (email -- of a person\n)", [("domain", ["email -- of a person\n"])]),
        ("domain()", [("domain", [])]),
        ("domain, t.domain(email), 'domain(email)', `domain`.x, subdomain(email)", []),
        ("domain(email", []),
        ("'domain(email)", []),
    ],
)
def test_calls_are_found(sql: str, calls: list[object]) -> None:
    assert [(call.function.name, call.arguments) for call in calls_in(sql)] == calls


def test_sql_without_calls_stays_as_it_is() -> None:
    assert with_calls("upper(email)") == "upper(email)"
    DECLARED.clear()
    assert with_calls("domain(email)") == "domain(email)"


@pytest.mark.usefixtures("spark")
def test_a_function_that_spark_can_not_have_is_told_with_its_place() -> None:
    line = r"/test_functions.py:\d+: function locked: can't be sent to Spark's processes: TypeError: cannot pickle "
    with pytest.raises(ConfigurationError, match=line):
        declare([locked])


MODULE = '''
"""The functions of this project."""
import math
from pulsar_lakehouse import Enrichment, Topic, function
from pulsar_lakehouse.gold.enrichment.declaration import FIXED

NAMES = {"a": 1}
OTHERS = []
OTHERS.append(1)
NAMES["b"] = 1
for each in "cd":
    NAMES.setdefault(each, 3)


def helped(value):
    """It helps."""
    from declarations import rates
    return NAMES.get(value), math.pi


def unused(value):
    return value


@function("value STRING", returns="BIGINT")
def counted(value):
    return helped(value)  # as it says


@function("value STRING", returns="BIGINT")
def another(value):
    return value
'''


@pytest.mark.parametrize(
    ("given", "instead", "is_another"),
    [
        ("# as it says", "# or not", False),
        ('"""It helps."""', '"""It helps a lot."""', False),
        ("return value\n\n\n@", "return 1\n\n\n@", False),
        ("def another(value):\n    return value", "def another(value):\n    return 2", False),
        ("OTHERS.append(1)", "OTHERS.append(2)", False),
        ('returns="BIGINT")\ndef counted', 'returns="STRING")\ndef counted', True),
        ('{"a": 1}', '{"a": 2}', True),
        ("math.pi", "math.e", True),
        ("import math", "import cmath as math", True),
        ("NAMES.get(value)", "NAMES[value]", True),
        ('NAMES = {"a": 1}', 'NAMES = {"a": 1}\nNAMES.update(b=2)', True),
        ('NAMES["b"] = 1', 'NAMES["b"] = 2', True),
        ("setdefault(each, 3)", "setdefault(each, 4)", True),
    ],
)
def test_a_function_is_another_if_what_it_needs_is(tmp_path: Path, given: str, instead: str, is_another: bool) -> None:
    assert MODULE.count(given) == 1
    one, other = (
        fingerprint(tmp_path / name, functions=text)
        for name, text in (("one", MODULE), ("other", MODULE.replace(given, instead)))
    )
    assert (one != other) is is_another


RATES = """
try:
    from .euro import *
except ImportError:
    pass
"""


def fingerprint(folder: Path, *, functions: str = MODULE, euro: str = "EUR = 1.1") -> str:
    files = {"functions": functions, "rates": RATES, "euro": euro, "visitors": VISITORS}
    return load(project(folder, **files)).pipeline.functions[0].fingerprint


def test_a_function_is_another_if_a_module_is_that_others_import(tmp_path: Path) -> None:
    one, same = fingerprint(tmp_path / "one"), fingerprint(tmp_path / "same", euro="EUR = 1.1  # a rate")
    assert (one == same, one == fingerprint(tmp_path / "other", euro="EUR = 1.2")) == (True, False)


def test_a_function_that_makes_the_rows_of_facts_is_fixed_with_their_table() -> None:
    fields = "id BIGINT NOT NULL, at TIMESTAMP NOT NULL, mails STRING"
    facts = Enrichment(
        topic=Topic("mails", fields, rows="split(domain(mails), ',')"),
        columns="id, at, row AS domain",
        keys=("id",),
        event_time="at",
        day="day",
        lookups=(),
    )
    assert "functions" in FIXED
    assert facts.definition["functions"] == f"function domain {domain.fingerprint}"
