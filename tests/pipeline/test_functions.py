"""What is wrong with functions of a project, and with their calls, is told by file and line."""

from pathlib import Path

import pytest

from pulsar_lakehouse.pipeline.loading import load
from tests.pipeline.conftest import own_modules as own_modules
from tests.pipeline.projects import COUNTS, VISITORS, VISITS, project
from tests.pipeline.test_loading import refused

FUNCTIONS = """
from pulsar_lakehouse import function

@function("city STRING", returns="STRING")
def tidy(city):
    return city

@function("id BIGINT", returns="DOUBLE", aggregate=True)
def spread(id):
    return 0

@function("id BIGINT", returns="DOUBLE", deterministic=False)
def drawn(id):
    return id
"""
CALLED = '"city": "tidy(upper(city))"'


def calling(folder: Path, given: str = "", instead: str = "") -> Path:
    """The project with calls, and one text in one of its files replaced."""
    files = {
        "functions": FUNCTIONS,
        "visitors": VISITORS.replace('"city": "upper(city)"', CALLED),
        "visits": VISITS,
        "counts": COUNTS.replace("AS visits", "AS visits,\n  spread(id) AS spread"),
    }
    assert not given or [given in text for text in files.values()].count(True) == 1, given
    return project(folder, **{name: text.replace(given, instead) if given else text for name, text in files.items()})


def test_a_project_with_functions_is_right(tmp_path: Path) -> None:
    found = load(calling(tmp_path))
    assert [each.name for each in found.pipeline.functions] == ["tidy", "spread", "drawn"]
    assert found.place(found.pipeline.functions[0]) == "declarations/functions.py:5: tidy"


EXACT = "is declared with deterministic=False: the same messages must give the same rows, whenever they come"
AT, IN_SQL = "declarations/visitors.py:11: VISITORS: column city: ", "declarations/sql/counts.sql:5: "


@pytest.mark.parametrize(
    ("given", "instead", "line"),
    [
        ('"city STRING", returns="STRING"', '"city TEXT", returns="STRING"', "declarations/functions.py:5: tidy: function tidy: arguments: field city is TEXT: must be one of"),
        ('"city STRING", returns="STRING"', '"city STRING"', "declarations/functions.py:5: tidy: function needs returns"),
        ('"city STRING", returns="STRING"', '"city STRING", retuns="STRING"', "declarations/functions.py:5: tidy: retuns: function has no such argument; did you mean returns?"),
        ("@function(\"city STRING\", returns=\"STRING\")", "@function", "declarations/functions.py:5: tidy: function needs returns"),
        ("def tidy(city)", "def tidy(city, more)", "declarations/functions.py:5: tidy: function tidy: arguments: city STRING: it is def tidy(city, more)"),
        ("def tidy(city)", "def trim(city)", "declarations/functions.py:5: trim: function trim: SQL uses this name: choose another"),
        ("def spread(id)", "def drawn(id)", "declarations/functions.py:13: drawn: function drawn: is the function of declarations/functions.py:9: drawn: choose another"),
        ("import function\n", "import function\nimport numpyy\n", "declarations/functions.py:3: numpyy: no such module"),
        (CALLED, '"city": "tidy(city, 2)"', f"{AT}tidy(city, 2): tidy takes 1, city, and not 2 arguments"),
        (CALLED, '"city": "upper(tidy())"', f"{AT}upper(tidy()): tidy takes 1, city, and not 0 arguments"),
        (CALLED, '"city": "spread(id)"', f"{AT}spread(id): spread is an aggregate, which only the SELECT of a SQL table can have"),
        (CALLED, '"city": "string(tidy(drawn(id)))"', f"{AT}drawn(id): drawn {EXACT}"),
        ('record="Visitor"', 'topic="people", where="tidy(city) = \'bonn\'", record="Visitor"', "declarations/visitors.py:11: VISITORS: topic visitors: where: tidy(city) = 'bonn': tidy may fail, and then no kind could be told: use fields, or the message"),
        ("spread(id) AS", "spread(id, 2) AS", f"{IN_SQL}spread(id, 2): spread takes 1, id, and not 2 arguments"),
        ("spread(id) AS", "max(drawn(id)) AS", f"{IN_SQL}drawn(id): drawn is declared with deterministic=False: declare `refresh: full`, or avoid it"),
        ("-- refresh", "-- check few (quarantine): drawn(visits) > 0\n-- refresh", f"declarations/sql/counts.sql:3: check few: drawn(visits) > 0: drawn {EXACT}"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(tmp_path: Path, given: str, instead: str, line: str) -> None:
    [told] = refused(calling(tmp_path, given, instead))
    assert told[: len(line)] == line, told


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("deterministic=False", "deterministic=True"),
        ("-- refresh: incremental", "-- refresh: full"),
        ('"id > 0"', '"id > 0"), "drawn": warn("drawn(id) > 0"'),
    ],
)
def test_what_need_not_give_the_same_again_may_call_any_function(tmp_path: Path, given: str, instead: str) -> None:
    folder = calling(tmp_path, given, instead)
    counts = folder / "sql" / "counts.sql"
    if "full" in counts.read_text() or "True" in instead:
        counts.write_text(counts.read_text().replace("spread(id)", "max(drawn(id))"))
    assert len(load(folder).pipeline.functions) == 3
