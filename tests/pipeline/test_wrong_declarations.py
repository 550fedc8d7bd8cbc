"""Declarations and settings whose mistake was hard to see in what was said: each line has the place and the word."""

from pathlib import Path

import pytest

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.settings import load_settings
from tests.pipeline.projects import VISITORS, VISITS, visits_project
from tests.pipeline.test_loading import CHECKS, FACTS, OURS, refused

HEAD = "-- keys: city\n-- refresh: full\n\n"
RIGHT = f"{HEAD}SELECT city FROM gold.enriched_visits\n"
A, B = "declarations/sql/a.sql", "declarations/sql/b.sql"
NOT_READ = "is not read: SQL tables are files such as declarations/sql/a.sql"
TOPIC = "declarations/visitors.py:5: VISITORS_TOPIC: topic visitors: "
FIELDS = 'fields=StructType([StructField("id", LongType(), nullable=False), StructField("city", StringType())])'


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        (A, HEAD.replace("full", "full\n-- publish: topic visits") + "SELECT city FROM gold.enriched_visits", f"{A}:3: publish: topic visits: is the topic of {OURS}: choose another"),
        (A, f"{HEAD}SELECT city FROM gold.a", f"{A}:4: gold.a is made from itself: it reads gold.a"),
        (A, f"{HEAD}SELECT city FORM gold.enriched_visits", f"{A}:4: not SQL: unexpected `gold` after `FORM`; did you mean FROM?"),
        (A, f"{HEAD}SELEC city\nFROM gold.enriched_visits", f"{A}:5: not SQL: unexpected `FROM` after `city`; did you mean SELECT?"),
        (A, f"{HEAD}SELECT city FROM gold.enriched_visits GROUP city", f"{A}:4: not SQL: unexpected `city` after `GROUP`"),
        (A, f"{HEAD}SELECT city FROM gold.enriched_visits WHERE", f"{A}:4: not SQL: something is missing after `WHERE`"),
        (A, f"{HEAD}SELECT (city FROM gold.enriched_visits", f"{A}:4: not SQL: `)` is missing near `FROM`"),
        (A, f"{HEAD}SELECT 'city FROM gold.enriched_visits", f"{A}:4: not SQL: the ' before `city FROM` is never closed"),
        (A, f"{HEAD}SELECT city /* all FROM gold.enriched_visits", f"{A}:4: not SQL: the comment that begins with /* is never closed"),
        (A, RIGHT.replace("keys:", "keys"), f"{A}:1: `-- keys: ...` is missing in the header: line 1 has no colon after keys"),
        ("declarations/sql/A-b.sql", RIGHT, "declarations/sql/A-b.sql:1: A-b: the file name becomes the table's: use lower-case letters, digits and _"),
        ("declarations/a.sql", "-- keys: id\nSELECT 1", f"declarations/a.sql:1: {NOT_READ}"),
        ("declarations/sql/eu/a.sql", "-- keys: id\nSELECT 1", f"declarations/sql/eu/a.sql:1: {NOT_READ}"),
        ("declarations/sql/A.SQL", "-- keys: id\nSELECT 1", f"declarations/sql/A.SQL:1: {NOT_READ}"),
        ("sql/a.sql", RIGHT, f"sql/a.sql:1: {NOT_READ}"),
        ("declarations/eu/a.py", VISITORS, "declarations/eu/a.py:1: is not read: declarations are files such as declarations/a.py"),
    ],
)  # fmt: skip
def test_of_a_file_that_is_wrong_line_and_word_are_told(tmp_path: Path, file: str, text: str, line: str) -> None:
    visits_project(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert refused(tmp_path / "declarations") == [line]


@pytest.mark.parametrize(
    ("given", "instead", "line"),
    [
        ('day="visit_date"', 'day="visit_date", publish_to="visits"', f"{FACTS}publish_to visits: is the topic that it is made from: choose another"),
        (FIELDS, 'fields="id BIGINT, home STRUCT<city: STRING"', f"{TOPIC}the `<` after `home STRUCT` is never closed"),
        (FIELDS, 'fields="id BIGINT NOT NULL city STRING"', f"{TOPIC}field id is BIGINT NOT NULL, and no comma is before `city STRING`"),
        (CHECKS, 'checks={"is_counted": quarantine("id >")}', f"{FACTS}visits: check is_counted: id >: not SQL: something is missing after `>`"),
        ('{"id": "id", "city": "upper(city)"}', '"id, upper(city AS city"', f"{FACTS.replace('visits', 'visitors').replace('VISITS', 'VISITORS')}visitors: columns: id, upper(city AS city: the `(` after `upper` is never closed"),
        ('{"id": "id", "city": "upper(city)"}', '"id, upper city) AS city"', f"{FACTS.replace('visits', 'visitors').replace('VISITS', 'VISITORS')}visitors: columns: id, upper city) AS city: the `)` after `city` was never opened"),
        ("import Entity, Topic", "import Entty, Topic", "declarations/visitors.py:3: Entty: pulsar_lakehouse has no such name; did you mean Entity?"),
        ("from declarations.visitors import VISITORS", "from declarations.visitor import VISITORS", "declarations/visits.py:2: declarations.visitor: no such module; did you mean declarations.visitors?"),
        ("from declarations.visitors import VISITORS", "from declarations.visitors import VISITOR", "declarations/visits.py:2: VISITOR: declarations.visitors has no such name; did you mean VISITORS?"),
        ('record="Visit"', "record=Topic.nam", "declarations/visits.py:6: VISITS_TOPIC: nam: Topic has no such name"),
    ],
)  # fmt: skip
def test_of_a_name_that_is_wrong_one_is_told_that_is_right(tmp_path: Path, given: str, instead: str, line: str) -> None:
    assert refused(visits_project(tmp_path, given, instead)) == [line]


def test_tables_that_are_made_from_each_other_are_told_with_their_lines(tmp_path: Path) -> None:
    folder = visits_project(tmp_path)
    for name, reads in (("a", "b"), ("b", "c"), ("c", "a")):
        (folder / "sql" / f"{name}.sql").write_text(RIGHT.replace("enriched_visits", reads))
    assert refused(folder) == [
        f"{A}:4: gold.a is made from itself: it reads gold.b, which reads gold.c ({B}:4), "
        "which reads gold.a (declarations/sql/c.sql:4)"
    ]


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("VISITS = Enrichment(*)", "ALL = [Enrichment(*)]"),
        ("VISITS = Enrichment(*)", "ALL = {'visits': (Enrichment(*),)}"),
        ("VISITS = Enrichment(*)", "Enrichment(*)"),
        ("VISITS = Enrichment(*)", "if True:\n    VISITS = Enrichment(*)"),
        ("VISITS = Enrichment(*)", "ALL = []\nfor _ in range(1):\n    ALL.append(Enrichment(*))"),
    ],
)
def test_what_is_declared_counts_wherever_it_is(tmp_path: Path, given: str, instead: str) -> None:
    folder = visits_project(tmp_path)
    head, _, arguments = VISITS.partition("VISITS = Enrichment(\n")
    arguments = arguments.rstrip().removesuffix(")")
    (folder / "visits.py").write_text(head + instead.replace("*", f"\n{arguments}") + "\n")
    assert [each.topic.name for each in load(folder).pipeline.enrichments] == ["visits"]


SET = "must be tenant/namespace, such as public/lakehouse"


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("LAKEHOUSE_PULSR__NAMESPACE", "a/b", "no such setting; did you mean LAKEHOUSE_PULSAR__NAMESPACE?"),
        ("LAKEHOUSE_PULSAR_NAMESPACE", "a/b", "no such setting; did you mean LAKEHOUSE_PULSAR__NAMESPACE?"),
        ("LAKEHOUSE_WAREHOSE", "x", "no such setting; did you mean LAKEHOUSE_WAREHOUSE?"),
        ("LAKEHOUSE_PULSAR__NAMESPCE", "a/b", "no such setting; did you mean LAKEHOUSE_PULSAR__NAMESPACE? (given: 'a/b')"),
        ("LAKEHOUSE_PULSAR__NAMESPACE", "x", f"{SET} (given: 'x')"),
        ("LAKEHOUSE_SPARK__MEMORY", "3", "must be a whole number with m or g after it, such as 3g (given: '3')"),
        ("LAKEHOUSE_S3__ENDPOINT", "foo", "must be http://host:port or https://host:port (given: 'foo')"),
        ("LAKEHOUSE_PULSAR__PARTITIONS", "no", "must be a whole number (given: 'no')"),
        ("LAKEHOUSE_PULSAR__PARTITIONS", "0", "must be 1 or more (given: '0')"),
        ("LAKEHOUSE_RUN__ONLY_NEW", "maybe", "must be true or false (given: 'maybe')"),
        ("LAKEHOUSE_SPARK", "x", "is a section: give its settings one by one, such as LAKEHOUSE_SPARK__MASTER"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_told_by_its_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as error:
        load_settings()
    assert str(error.value) == f"{variable}: {line}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n[pulsr]\nnamespace = 'a/b'", "2: pulsr: no such section; did you mean pulsar?"),
        ("[pulsar]\n\nnamespce = 'a/b'", "3: pulsar.namespce: no such setting; did you mean namespace? (given: 'a/b')"),
        ("pulsar.namespace = 'x'", f"1: pulsar.namespace: {SET} (given: 'x')"),
        ("[spark]\nmemory = 3", "2: spark.memory: must be a text (given: 3)"),
        ("hom = 'x'", "1: hom: no such setting; did you mean home? (given: 'x')"),
        ("spark = 3", "1: spark: is a section: give its settings one by one, such as master = ... under [spark] (given: 3)"),
        ("[pulsar]\ntoken = 'x'", "2: pulsar.token is a secret: set LAKEHOUSE_PULSAR__TOKEN instead"),
        ("\n[pulsar\n", "2: not TOML: Expected ']' at the end of a table declaration"),
    ],
)  # fmt: skip
def test_a_wrong_setting_in_the_file_is_told_by_its_line(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "lakehouse.toml").write_text(text)
    with pytest.raises(ConfigurationError) as error:
        load_settings()
    assert str(error.value) == f"lakehouse.toml:{line}"
