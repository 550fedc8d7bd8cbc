"""How a project is found in its folder, and what is said about wrong declarations."""

from pathlib import Path

import pytest

from lakehouse.errors import ConfigurationError, DeclarationsError
from pipeline.loading import load
from tests.pipeline.projects import COUNTS, VISITORS, VISITS, project, visits_project

SEE_VISITORS = "from declarations.visitors import VISITORS\n"
SUITE = "from expectations.silver import latest, unless_deleted\nSUITE = latest(VISITORS, unless_deleted('named', 'city IS NOT NULL'))\n"
ROOT = Path(__file__).parent.parent.parent


def refused(folder: Path) -> list[str]:
    with pytest.raises(DeclarationsError) as error:
        load(folder)
    return list(error.value.mistakes)


def test_a_project_is_all_that_its_files_declare(tmp_path: Path) -> None:
    found = load(visits_project(tmp_path)).pipeline
    assert [entity.name for entity in found.entities] == ["visitors"]
    assert [facts.gold_table for facts in found.enrichments] == ["gold.enriched_visits"]
    assert [table.name for table in found.sql_tables] == ["gold.counts"]
    assert found.written == ("bronze.visitors", "bronze.visits", "silver.visitors", "gold.enriched_visits")


def test_files_import_each_other_in_any_order(tmp_path: Path) -> None:
    files = {"a_suite": SEE_VISITORS + SUITE, "b_again": SEE_VISITORS, "visitors": VISITORS}
    found = load(project(tmp_path, **files)).pipeline
    assert len(found.entities) == 1
    [suite] = [suite for suite in found.suites if suite.table == "silver.visitors"]
    assert "named" in [rule.name for rule in suite.rules]


def test_a_table_without_a_suite_of_its_own_gets_one(tmp_path: Path) -> None:
    found = load(visits_project(tmp_path)).pipeline
    assert [suite.table for suite in found.suites] == [
        *("bronze.visitors", "bronze.visits", "silver.visitors", "silver.visitors_history", "gold.enriched_visits"),
        *("quarantine.waiting_visits", "quarantine.duplicate_visits", "quarantine.discarded_visits"),
        "quarantine.malformed",
    ]
    assert [suite.table for suite in found.sql_suites] == ["gold.counts", "quarantine.sql_rows"]


def test_the_example_is_a_project() -> None:
    found = load(ROOT / "domains" / "favorites" / "declarations").pipeline
    assert [entity.name for entity in found.entities] == ["account_users", "favorite_colors", "favorite_cheeses"]
    assert [table.name for table in found.sql_tables] == [
        "gold.user_count_by_account",
        "gold.user_favorite_color_and_cheese",
    ]


def test_facts_need_no_name_if_there_are_no_others(tmp_path: Path) -> None:
    found = load(visits_project(tmp_path)).pipeline
    assert found.facts_named("") == found.facts_named("visits")
    with pytest.raises(ConfigurationError, match=r"^orders: no such facts; there are visits$"):
        found.facts_named("orders")


def test_of_several_facts_one_must_be_named(tmp_path: Path) -> None:
    more = VISITS.replace('"visits"', '"calls"')
    found = load(project(tmp_path, visitors=VISITORS, visits=VISITS, calls=more)).pipeline
    with pytest.raises(ConfigurationError, match=r"^--facts: say which; there are calls, visits$"):
        found.facts_named("")


ENTITY = "declarations/visitors.py:12: VISITORS: "
FACTS = "declarations/visits.py:12: VISITS: "
CITY = '"city": "upper(city)"}'
AT = '"visited_at": "timestamp_millis(at)"}'
A_LOOKUP = 'Lookup(name="visitor", entity=VISITORS, on="visitor_id")'


@pytest.mark.parametrize(
    ("given", "instead", "line"),
    [
        ('key="id"', 'key="uid"', f"{ENTITY}visitors: key uid: must be one of id, city"),
        ('key="id"', "key=1", f"{ENTITY}key: 1: must be a text or a tuple of texts, such as (\"id\",), with the comma"),
        ('    key="id",\n', "", f"{ENTITY}Entity needs key"),
        ('key="id"', 'kye="id"', f"{ENTITY}kye: Entity has no such argument; did you mean key?"),
        ('{"id": "id", "city": "upper(city)"}', '["id", "city"]', f"{ENTITY}columns: ['id', 'city']: must be a dict of texts by name or a text"),
        ('"upper(city)"', "1", f"{ENTITY}columns: {{'id': 'id', 'city': 1}}: must be a dict of texts by name or a text"),
        ('"city": "upper(city)"', '"city": " "', f"{ENTITY}visitors: column city:  : must not be empty"),
        (CITY, CITY.replace('"city"', '"City"'), f"{ENTITY}columns: City: must be a name of lower-case letters, digits and _, after a letter"),
        (CITY, CITY.replace('"city"', '"sequence"'), f"{ENTITY}visitors: column sequence: silver has one of that name: choose another"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', 'deleted_at=""', f"{ENTITY}deleted_at: has no SQL; leave it out if nothing is deleted"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', "keep_deleted=-1", f"{ENTITY}keep_deleted: -1: must be 0 or more days"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', 'keep_deleted="90"', f"{ENTITY}keep_deleted: 90: must be a whole number"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', "keeps_history=1", f"{ENTITY}keeps_history: 1: must be True or False"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', "ignore_null_updates=True, keeps_history=False", f"{ENTITY}visitors: ignore_null_updates needs keeps_history"),
        ("topic=VISITORS_TOPIC", 'topic="visitors"', f"{ENTITY}topic: visitors: must be a Topic"),
        ("topic=VISITORS_TOPIC", "topic=VISITOR_TOPIC", f"{ENTITY}NameError: name 'VISITOR_TOPIC' is not defined"),
        ('name="visitors"', 'name="Visitors"', f"{ENTITY}topic Visitors: must be named in lower case, such as orders: its tables have the name, too"),
        ('record="Visitor"', "record=None", "declarations/visitors.py:6: VISITORS_TOPIC: topic visitors: record: None: must be a text"),
        ('StructField("city", StringType())', 'StructField("ID", StringType())', f"{ENTITY}topic visitors: field id is there twice, as SQL does not tell upper from lower case"),
        ('StructField("city", StringType())', 'StructField("city", StructType())', "declarations/visitors.py:6: VISITORS_TOPIC: topic visitors: field city has no fields"),
        ("from silver.entity import Entity", "from silver.entities import Entity", "declarations/visitors.py:4: ModuleNotFoundError: No module named 'silver.entities'"),
        ("VISITORS = Entity(", "VISITORS = Entity((", "declarations/visitors.py:12: '(' was never closed"),
        ('keys=("id",)', 'keys="id"', f'{FACTS}keys: id: must be a tuple of texts, such as ("id",), with the comma'),
        ('keys=("id",)', 'keys=["id"]', f"{FACTS}keys: ['id']: must be a tuple of texts, such as (\"id\",), with the comma"),
        ('keys=("id",)', "keys=()", f"{FACTS}keys: there are none: name the columns that identify a fact"),
        ('keys=("id",)', 'keys=("visit_id",)', f"{FACTS}keys: visit_id is not a column; there are id, visitor_id, visited_at"),
        ('keys=("id",)', 'keys=("id", "id")', f"{FACTS}keys: id is there twice"),
        ('event_time="visited_at"', 'event_time="visited"', f"{FACTS}event_time: visited is not a column; there are id, visitor_id, visited_at"),
        ('day="visit_date"', 'day="visited_at"', f"{FACTS}visits: a column of the day can't be named visited_at, which is a column of visits itself"),
        ('day="visit_date"', 'day="visit date"', f"{FACTS}day: visit date: must be a name of lower-case letters, digits and _, after a letter"),
        (AT, AT.replace("}", ', "position": "1"}'), f"{FACTS}visits: a column of visits itself can't be named position, which is a column of the enrichment"),
        (f"({A_LOOKUP},)", A_LOOKUP, f"{FACTS}lookups: Lookup(entity=Entity(topic=Topic(name='visitors',...: must be a tuple of Lookups, such as (...,), with the comma"),
        (f"({A_LOOKUP},)", f"({A_LOOKUP}, {A_LOOKUP})", f"{FACTS}visits: a column of lookup visitor can't be named visitor, which is a column of lookup visitor"),
        ('on="visitor_id"', 'on="visitor"', f"{FACTS}visits: lookup visitor is on visitor, which is no column; there are id, visitor_id, visited_at"),
        ('on="visitor_id"', 'on="visitor_id", join="asof"', f'{FACTS}lookup visitor: join: asof: must be "latest" or "as_of"'),
        ('on="visitor_id"', 'on="visitor_id", max_merges=0', f"{FACTS}lookup visitor: max_merges is 0: must be 1 or more"),
        ('on="visitor_id"', 'on="visitor_id", key="city"', f"{FACTS}key: Lookup has no such argument"),
        ('on="visitor_id"', 'on="visitor_id", requires=False', f"{FACTS}requires: Lookup has no such argument; did you mean required?"),
        ("entity=VISITORS", 'entity="visitors"', f"{FACTS}lookup visitor: entity: visitors: must be an Entity"),
        ('name="visits"', 'name="visitors"', f"{FACTS}visitors: another declaration has this topic already"),
        ('day="visit_date"', 'day="visit_date", publish_to="visitors"', f"{FACTS}visitors: another declaration has this topic already"),
        ('day="visit_date"', 'day="visit_date", dedup_days=-7', f"{FACTS}dedup_days: -7: must be 0 or more days"),
        ('rules={"is_counted": "id > 0"}', 'rules=("id > 0",)', f"{FACTS}rules: ('id > 0',): must be a dict of texts by name"),
        ('rules={"is_counted": "id > 0"}', 'rules={"is_counted": ""}', f"{FACTS}rules: is_counted: has no SQL"),
        ("-- keys: city\n", "", "declarations/sql/counts.sql:1: `-- keys: ...` is missing in the header"),
        ("incremental", "often", "declarations/sql/counts.sql:3: refresh: often: must be incremental or full"),
        ("-- refresh", "-- publish: topic visits\n-- refresh", "declarations/sql/counts.sql:1: visits: another declaration has this topic already"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_file_line_and_name(tmp_path: Path, given: str, instead: str, line: str) -> None:
    assert refused(visits_project(tmp_path, given, instead)) == [line]


def test_all_mistakes_are_told_at_once_and_none_that_only_follows(tmp_path: Path) -> None:
    visitors = VISITORS.replace('key="id"', 'key="uid"').replace("deleted_at=", "deletedat=")
    visits = VISITS.replace(f"({A_LOOKUP},)", "()").replace("day=", "day_of=")
    stores = VISITORS.replace("visitors", "stores").replace('key="id"', 'key="uid"').replace('"upper(city)"', '""')
    files = {"a_suite": SEE_VISITORS + SUITE, "visitors": visitors, "visits": visits, "stores": stores}
    assert refused(project(tmp_path, **files, counts=COUNTS.replace("keys", "kyes"))) == [
        "declarations/visitors.py:12: VISITORS: deletedat: Entity has no such argument; did you mean deleted_at?",
        "declarations/stores.py:12: VISITORS: stores: column city: '': must not be empty",
        "declarations/visits.py:12: VISITS: day_of: Enrichment has no such argument; did you mean day?",
        "declarations/sql/counts.sql:2: kyes: unknown; must be one of keys, refresh, sources, publish",
    ]


def test_an_entity_as_of_a_time_needs_its_history(tmp_path: Path) -> None:
    visits = VISITS.replace('on="visitor_id"', 'on="visitor_id", join="as_of"')
    without = VISITORS.replace("deleted_at=", "keeps_history=False, deleted_at=")
    assert refused(project(tmp_path, visitors=without, visits=visits)) == [
        f"{FACTS}lookup visitor: joins visitors as_of a time, which needs a history of whole updates: "
        'use join="latest", or declare the entity with keeps_history and without ignore_null_updates'
    ]


def test_a_suite_is_for_a_table_of_the_project_and_for_one_only(tmp_path: Path) -> None:
    other = "from expectations.suites import Suite\nOTHER = Suite(table='silver.users', rules=(), key=('id',))\n"
    files = {"a": SEE_VISITORS + SUITE, "b": SEE_VISITORS + SUITE, "c": other, "visitors": VISITORS}
    assert refused(project(tmp_path, **files)) == [
        "declarations/b.py:3: SUITE: silver.visitors: there are two suites for it; give one the rules of both",
        "declarations/c.py:2: OTHER: silver.users: no table of this project",
    ]


def test_two_tables_do_not_share_one_in_postgres(tmp_path: Path) -> None:
    folder = project(tmp_path, visitors=VISITORS, visits=VISITS)
    for name, target in (("a", "counts"), ("b", "public.counts")):
        text = COUNTS.replace("-- refresh", f"-- publish: postgres {target}\n-- refresh")
        (folder / "sql" / f"{name}.sql").write_text(text)
    assert refused(folder) == [
        "declarations/sql/b.sql:1: counts: another declaration has this table in Postgres already"
    ]


def test_a_folder_without_declarations_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^declarations: no file declares an Entity or an Enrichment"):
        load(project(tmp_path))
