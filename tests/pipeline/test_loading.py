"""How a project is found in its folder, and what is said about wrong declarations."""

from pathlib import Path

import pytest

from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError
from pulsar_lakehouse.pipeline.loading import load, pipeline_of
from pulsar_lakehouse.settings import load_settings
from tests.pipeline.projects import COUNTS, VISITORS, VISITS, project, visits_project

SEE_VISITORS = "from declarations.visitors import VISITORS\n"
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
    files = {"a_first": SEE_VISITORS, "b_again": SEE_VISITORS, "visitors": VISITORS}
    assert len(load(project(tmp_path, **files)).pipeline.entities) == 1


def test_every_table_has_a_suite_with_the_checks_that_are_declared_of_it(tmp_path: Path) -> None:
    files = {
        "visitors": VISITORS.replace("deleted_at=", 'checks={"named": warn("city > \'\'")}, deleted_at='),
        "visits": VISITS,
        "counts": COUNTS.replace("-- refresh", "-- check few (fail): visits < 9\n-- refresh"),
    }
    found = load(project(tmp_path, **files)).pipeline
    assert [suite.table for suite in found.suites] == [
        *("bronze.visitors", "bronze.visits", "silver.visitors", "silver.visitors_history", "gold.enriched_visits"),
        *("quarantine.waiting_visits", "quarantine.duplicate_visits", "quarantine.discarded_visits"),
        "quarantine.malformed",
    ]
    assert [suite.table for suite in found.sql_suites] == ["gold.counts", "quarantine.sql_rows"]
    suites = (*found.suites, *found.sql_suites)
    rules = {(suite.table, rule.name): (rule.holds, rule.severity) for suite in suites for rule in suite.rules}
    assert rules["silver.visitors", "named"] == ("deleted_at IS NOT NULL OR (city > '')", "warning")
    assert rules["gold.enriched_visits", "is_counted"] == ("id > 0", "critical")
    assert rules["gold.counts", "few"] == ("visits < 9", "critical")


def test_the_example_is_a_project() -> None:
    found = load(ROOT / "pulsar_lakehouse" / "domains" / "favorites" / "declarations").pipeline
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
    with pytest.raises(ConfigurationError, match=r"^name the topic of the facts: there are calls, visits$"):
        found.facts_named("")


ENTITY = "declarations/visitors.py:11: VISITORS: "
FACTS = "declarations/visits.py:11: VISITS: "
THEIRS, OURS = ENTITY.removesuffix(": "), FACTS.removesuffix(": ")
CITY = '"city": "upper(city)"}'
AT = '"visited_at": "timestamp_millis(at)"}'
CHECKS = 'checks={"is_counted": quarantine("id > 0")}'
DELETED_AT = 'deleted_at="CAST(NULL AS TIMESTAMP)"'
A_LOOKUP = 'Lookup(name="visitor", entity=VISITORS, on="visitor_id")'


def matched(**given: str) -> str:
    """Arguments of visits that match the visitors, though these have no time."""
    texts = {"name": "first", "on": "visitor_id", "by": "id", "time": "city", "within": "1 hour", **given}
    named = ", ".join(f"{name}={text!r}" for name, text in texts.items())
    return f"lookups=(), matches=(Match(entity=VISITORS, {named}),)"


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
        (CITY, CITY.replace('"city"', '"cITY"'), f"{ENTITY}columns: cITY: must be a name of lower-case letters, digits and _, after a letter"),
        (CITY, CITY.replace('"city"', '"sequence"'), f"{ENTITY}visitors: column sequence: silver has one of that name: choose another"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', 'deleted_at=""', f"{ENTITY}deleted_at: has no SQL; leave it out if nothing is deleted"),
        (DELETED_AT, 'occurred_at=" "', f"{ENTITY}occurred_at: has no SQL; leave it out if the message's own time counts"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', "keep_deleted=-1", f"{ENTITY}keep_deleted: -1: must be 0 or more days"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', 'keep_deleted="90"', f"{ENTITY}keep_deleted: 90: must be a whole number"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', "keeps_history=1", f"{ENTITY}keeps_history: 1: must be True or False"),
        ('deleted_at="CAST(NULL AS TIMESTAMP)"', "ignore_null_updates=True, keeps_history=False", f"{ENTITY}visitors: ignore_null_updates needs keeps_history"),
        ("topic=VISITORS_TOPIC", 'topic="visitors"', f"{ENTITY}topic: visitors: must be a Topic"),
        ("topic=VISITORS_TOPIC", "topic=VISITOR_TOPIC", f"{ENTITY}VISITOR_TOPIC: no such name; did you mean VISITORS_TOPIC?"),
        ('name="visitors"', 'name="Visitors"', f'{ENTITY}topic Visitors: its tables need a name of lower-case letters, digits and _: declare Topic("visitors", topic="Visitors", ...)'),
        ('record="Visitor"', 'topic="eu/visitors"', f"{ENTITY}topic visitors: topic: eu/visitors: must be a name such as orders-v1, or a full one such as persistent://sales/eu/orders-v1"),
        ('record="Visitor"', 'topic="non-persistent://sales/eu/visitors"', f"{ENTITY}topic visitors: topic: non-persistent://sales/eu/visitors: must be a name such as orders-v1, or a full one such as persistent://sales/eu/orders-v1"),
        ('record="Visitor"', 'topic=("visitors", "eu/visitors")', f"{ENTITY}topic visitors: topic: eu/visitors: must be a name such as orders-v1, or a full one such as persistent://sales/eu/orders-v1"),
        ('record="Visitor"', 'topic=("eu", "us", "eu")', f"{ENTITY}topic visitors: topic: eu is there twice"),
        ('record="Visitor"', "topic=()", f'{ENTITY}topic visitors: topic: (): is empty: name the topics, such as ("orders-eu", "orders-us")'),
        ('record="Visitor"', 'topic="visitors-.*"', f'{ENTITY}topic visitors: topic: visitors-.*: a pattern of names is re.compile("visitors-.*")'),
        ('record="Visitor"', 'topic=__import__("re").compile("eu/.*")', f"{ENTITY}topic visitors: topic: eu/.*: must be a pattern of names such as orders-.*, or of full ones such as persistent://sales/eu/orders-.*"),
        ('record="Visitor"', 'topic=("visits", "visitors")', f"{FACTS}topic visits: is the topic of {THEIRS}: choose another"),
        ('record="Visitor"', 'topic=__import__("re").compile("visit.*")', f"{ENTITY}topic visit.*: matches visits, the topic of {OURS}: choose another"),
        ('name="visitors"', 'name="orders-v1"', f'{ENTITY}topic orders-v1: its tables need a name of lower-case letters, digits and _: declare Topic("orders_v1", topic="orders-v1", ...)'),
        ('record="Visitor"', "record=None", "declarations/visitors.py:5: VISITORS_TOPIC: topic visitors: record: None: must be a text"),
        ('StructField("city", StringType())', 'StructField("ID", StringType())', f"{ENTITY}topic visitors: field id is there twice, as SQL does not tell upper from lower case"),
        ('StructField("city", StringType())', 'StructField("city", StructType())', "declarations/visitors.py:5: VISITORS_TOPIC: topic visitors: field city has no fields"),
        ("from pulsar_lakehouse import Entity", "from pulsar_lakehouse.entities import Entity", "declarations/visitors.py:3: pulsar_lakehouse.entities: no such module"),
        ("from pulsar_lakehouse import Entity", "from silver.entity import Entity\nfrom pulsar_lakehouse import Entity", "declarations/visitors.py:3: silver.entity: gone since 0.1.0: from pulsar_lakehouse import Entity"),
        ("from pulsar_lakehouse import Enrichment, Lookup, Topic", "from gold.enrichment.declaration import Enrichment as Facts, Lookup\nfrom pulsar_lakehouse import Enrichment, Lookup, Topic", "declarations/visits.py:4: gold.enrichment.declaration: gone since 0.1.0: from pulsar_lakehouse import Enrichment as Facts, Lookup"),
        ("VISITORS = Entity(", "VISITORS = Entity((", "declarations/visitors.py:11: '(' was never closed"),
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
        (f"lookups=({A_LOOKUP},)", matched(within="soon"), f"{FACTS}match first: within: soon: must be a number of seconds, minutes, hours or days, such as 90 minutes"),
        (f"lookups=({A_LOOKUP},)", matched(time="seen_at"), f"{FACTS}match first: time seen_at: is no column of visitors; there are id, city"),
        (f"lookups=({A_LOOKUP},)", matched(by="name"), f"{FACTS}match first: by name: is no column of visitors; there are id, city"),
        (f"lookups=({A_LOOKUP},)", matched(on="visitor"), f"{FACTS}visits: match first is on visitor, which is no column; there are id, visitor_id, visited_at"),
        (f"lookups=({A_LOOKUP},)", matched(each="last"), f'{FACTS}match first: each: last: must be "first" or "all"'),
        (f"lookups=({A_LOOKUP},)", matched(latness="1 day"), f"{FACTS}latness: Match has no such argument; did you mean lateness?"),
        (f"lookups=({A_LOOKUP},)", matched(name="First"), f"{FACTS}match First: must be named in lower case, such as user: gold has a column of that name"),
        (f"({A_LOOKUP},)", f"({A_LOOKUP}, {A_LOOKUP})", f"{FACTS}visits: a column of lookup visitor can't be named visitor, which is a column of lookup visitor"),
        ('on="visitor_id"', 'on="visitor"', f"{FACTS}visits: lookup visitor is on visitor, which is no column; there are id, visitor_id, visited_at"),
        ('on="visitor_id"', 'on="visitor_id", join="asof"', f'{FACTS}lookup visitor: join: asof: must be "latest" or "as_of"'),
        ('on="visitor_id"', 'on="visitor_id", max_merges=0', f"{FACTS}lookup visitor: max_merges is 0: must be 1 or more"),
        ('key="id"', 'key="id", key_type="BIGINT"', f"{ENTITY}key_type: gone since 0.1.0: types are those of the SQL: leave it out, and write a CAST where they differ"),
        ("import Entity, Topic", "import epoch_millis, Entity, Topic", "declarations/visitors.py:3: epoch_millis: gone since 0.1.0: declare the field as TIMESTAMP_MILLIS"),
        ("-- refresh", "-- sources: silver.visitors\n-- refresh", "declarations/sql/counts.sql:3: sources: gone since 0.1.0: remove the line; the sources are those that the SELECT reads"),
        ('on="visitor_id"', 'on="visitor_id", key="city"', f"{FACTS}key: Lookup has no such argument"),
        ('on="visitor_id"', 'on="visitor_id", requires=False', f"{FACTS}requires: Lookup has no such argument; did you mean required?"),
        ("entity=VISITORS", 'entity="visitors"', f"{FACTS}lookup visitor: entity: visitors: must be an Entity"),
        ('name="visits"', 'name="visitors"', f"{FACTS}topic visitors: is the topic of {THEIRS}: choose another"),
        ('day="visit_date"', 'day="visit_date", publish_to="visitors"', f"{FACTS}publish_to visitors: is the topic of {THEIRS}: choose another"),
        ('day="visit_date"', 'day="visit_date", dedup_days=-7', f"{FACTS}dedup_days: -7: must be 0 or more days"),
        (CHECKS, 'checks=("id > 0",)', f"{FACTS}checks: ('id > 0',): must be a dict of Checks by name"),
        (CHECKS, 'checks={"is_counted": "id > 0"}', f"{FACTS}checks: {{'is_counted': 'id > 0'}}: must be a dict of Checks by name"),
        (CHECKS, 'checks={"is_counted": fail(" ")}', f"{FACTS}visits: check is_counted: has no SQL"),
        (CHECKS, 'checks={"is counted": warn("id > 0")}', f"{FACTS}visits: check is counted: must be named with lower-case letters, digits and _, after a letter"),
        (CHECKS, 'checks={"is_counted": warn("id > 0; 1")}', f"{FACTS}visits: check is_counted: id > 0; 1: not SQL: must be one condition, without parameters"),
        (CHECKS, 'checks={"is_known": quarantine("visitor.id > 0")}', f"{FACTS}visits: check is_known: visitor.id > 0: quarantine comes before visitor is joined: use warn or fail, or columns of the fact alone"),
        (CHECKS, 'checks={"id_is_there": warn("id > 0")}', f"{FACTS}check id_is_there: gold.enriched_visits has a rule of this name already: choose another"),
        (DELETED_AT, f'ignore_null_updates=True, {CHECKS}', f"{ENTITY}visitors: check is_counted: quarantine is of whole messages, and ignore_null_updates has updates of some fields: use warn or fail"),
        (DELETED_AT, f'keeps_history=False, {CHECKS}', f"{ENTITY}visitors: check is_counted: quarantine needs keeps_history, which tells the messages that were merged before the check was declared: use warn or fail"),
        ("-- refresh", "-- chek small: visits < 9\n-- refresh", "declarations/sql/counts.sql:3: chek: unknown; must be one of keys, refresh, publish, check, parameter; did you mean check?"),
        ("-- refresh", "-- check small (drop): visits < 9\n-- refresh", "declarations/sql/counts.sql:3: check small (drop): must be warn, quarantine or fail"),
        ("-- refresh", "-- check city_is_there: city > ''\n-- refresh", "declarations/sql/counts.sql:1: check city_is_there: gold.counts has a rule of this name already: choose another"),
        ("-- refresh", "-- parameter least: 1\n-- refresh", "declarations/sql/counts.sql:3: parameter least: the SELECT has no :least"),
        ("GROUP BY", "WHERE id > :least GROUP BY", "declarations/sql/counts.sql:4: :least: declare it, as `-- parameter least: VALUE`"),
        ("FROM gold.enriched_visits", "FROM visits", "declarations/sql/counts.sql:4: reads visits: must be a table such as silver.users"),
        ("-- keys: city\n", "", "declarations/sql/counts.sql:1: `-- keys: ...` is missing in the header"),
        ("incremental", "often", "declarations/sql/counts.sql:3: refresh: often: must be incremental or full"),
        ("-- refresh", "-- publish: topic visits\n-- refresh", f"declarations/sql/counts.sql:3: publish: topic visits: is the topic of {OURS}: choose another"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_file_line_and_name(tmp_path: Path, given: str, instead: str, line: str) -> None:
    assert refused(visits_project(tmp_path, given, instead)) == [line]


def test_all_mistakes_are_told_at_once_and_none_that_only_follows(tmp_path: Path) -> None:
    visitors = VISITORS.replace('key="id"', 'key="uid"').replace("deleted_at=", "deletedat=")
    visits = VISITS.replace(f"({A_LOOKUP},)", "()").replace("day=", "day_of=")
    stores = VISITORS.replace("visitors", "stores").replace('key="id"', 'key="uid"').replace('"upper(city)"', '""')
    files = {"again": SEE_VISITORS, "visitors": visitors, "visits": visits, "stores": stores}
    assert refused(project(tmp_path, **files, counts=COUNTS.replace("keys", "kyes"))) == [
        "declarations/visitors.py:11: VISITORS: deletedat: Entity has no such argument; did you mean deleted_at?",
        "declarations/stores.py:11: VISITORS: stores: column city: '': must not be empty",
        "declarations/visits.py:11: VISITS: day_of: Enrichment has no such argument; did you mean day?",
        "declarations/sql/counts.sql:2: kyes: unknown; must be one of keys, refresh, publish, check, parameter; "
        "did you mean keys?",
    ]


def test_old_imports_are_told_with_those_that_are_right_now(tmp_path: Path) -> None:
    """What only follows, that no name is known, is not told."""
    imports = (
        "from lakehouse.contracts.topics import Topic, epoch_millis\n"
        "from silver.entity import Entity\n"
        "from lakehouse.contracts.checks import fail, quarantine, warn\n"
    )
    visitors = VISITORS.replace("from pulsar_lakehouse import Entity, Topic, fail, quarantine, warn\n", imports)
    assert refused(project(tmp_path, visitors=visitors)) == [
        "declarations/visitors.py:3: epoch_millis: gone since 0.1.0: declare the field as TIMESTAMP_MILLIS",
        "declarations/visitors.py:3: lakehouse.contracts.topics: gone since 0.1.0: from pulsar_lakehouse import Topic",
        "declarations/visitors.py:4: silver.entity: gone since 0.1.0: from pulsar_lakehouse import Entity",
        "declarations/visitors.py:5: lakehouse.contracts.checks: gone since 0.1.0: "
        "from pulsar_lakehouse import fail, quarantine, warn",
    ]


def test_an_entity_as_of_a_time_needs_its_history(tmp_path: Path) -> None:
    visits = VISITS.replace('on="visitor_id"', 'on="visitor_id", join="as_of"')
    without = VISITORS.replace("deleted_at=", "keeps_history=False, deleted_at=")
    assert refused(project(tmp_path, visitors=without, visits=visits)) == [
        f"{FACTS}lookup visitor: joins visitors as_of a time, which needs a history: "
        'use join="latest", or declare the entity with keeps_history'
    ]


def test_parameters_have_other_values_by_settings(tmp_path: Path) -> None:
    counts = COUNTS.replace("-- refresh", "-- parameter least: 1\n-- refresh").replace(
        "GROUP", "WHERE id > :least GROUP"
    )
    folder = project(tmp_path, visitors=VISITORS, visits=VISITS, counts=counts)

    def parameters(**given: object) -> list[object]:
        settings = load_settings(declarations=folder, parameters=given)
        return [table.parameters for table in pipeline_of(settings).sql_tables]

    assert parameters() == [{"least": "1"}]
    assert parameters(counts={"least": 5}) == [{"least": "5"}]
    for given, line in (
        ({"sums": {"least": 5}}, "parameters.sums: no SQL table of this name has any; there are counts"),
        ({"counts": {"most": 5}}, "parameters.counts.most: no such parameter; there are least"),
        ({"counts": {"least": "few"}}, "parameters.counts.least: few: must be a literal, such as 1, 'none' or DATE "),
    ):
        with pytest.raises(ConfigurationError, match=f"^{line}"):
            parameters(**given)


def test_two_tables_do_not_share_one_in_postgres(tmp_path: Path) -> None:
    folder = project(tmp_path, visitors=VISITORS, visits=VISITS)
    for name, target in (("a", "counts"), ("b", "public.counts")):
        text = COUNTS.replace("-- refresh", f"-- publish: postgres {target}\n-- refresh")
        (folder / "sql" / f"{name}.sql").write_text(text)
    assert refused(folder) == [
        "declarations/sql/b.sql:3: publish: postgres counts: is the table in Postgres of declarations/sql/a.sql:3: "
        "choose another"
    ]


def test_a_topic_of_the_namespace_is_that_of_the_full_name(tmp_path: Path) -> None:
    full = 'name="visits", topic="persistent://public/lakehouse/visitors"'
    settings = load_settings(declarations=visits_project(tmp_path, 'name="visits"', full))
    with pytest.raises(DeclarationsError) as error:
        pipeline_of(settings)
    assert error.value.mistakes == [f"{FACTS}topic visitors: is the topic of {THEIRS}: choose another"]


def test_topics_of_other_names_need_tables_of_their_own(tmp_path: Path) -> None:
    folder = visits_project(tmp_path, 'name="visits"', 'name="visitors", topic="visits"')
    assert refused(folder) == [f"{FACTS}table bronze.visitors: is the table of {THEIRS}: choose another"]


def test_a_folder_without_declarations_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^declarations: no file declares an Entity or an Enrichment"):
        load(project(tmp_path))


KINDS = """
from pulsar_lakehouse import Debezium, Entity, Topic

A = Entity(topic=Topic("customers", "id BIGINT NOT NULL, kind STRING", topic="events", where="kind = 'c'"), key="id", columns="id")
B = Entity(topic=Topic("stores", "id BIGINT NOT NULL, kind STRING", topic="events", where="kind = 's'"), key="id", columns="id")
"""


def test_kinds_share_a_topic_and_its_table(tmp_path: Path) -> None:
    pipeline = load(project(tmp_path, kinds=KINDS)).pipeline
    assert [topic.name for topic in pipeline.topics] == ["events"]
    assert pipeline.written == ("bronze.events", "silver.customers", "silver.stores")
    assert pipeline.kinds_of("bronze.events") == (("customers", "kind = 'c'"), ("stores", "kind = 's'"))


@pytest.mark.parametrize(
    ("given", "instead", "line"),
    [
        (", where=\"kind = 's'\"", "", "topic events: is the topic of {A}: choose another"),
        ("kind = 's'", "kind  = 'c'", "topic stores: where of events: kind = 'c': is that of {A}: choose another"),
        ('"stores"', '"customers"', "topic customers: name: customers: is that of {A}: choose another"),
        ('"stores"', '"events"', "topic events: name: all kinds of events land in bronze.events: choose another"),
        (
            ", where=\"kind = 's'\"",
            ", where=\"kind = 's'\", envelope=Debezium()",
            "topic stores: where: kind = 's': customers reads payloads in another way: tell both by the message",
        ),
    ],
)
def test_kinds_that_are_not_told_apart_are_refused(tmp_path: Path, given: str, instead: str, line: str) -> None:
    first, second = "declarations/kinds.py:4: A", "declarations/kinds.py:5: B"
    assert refused(project(tmp_path, kinds=KINDS.replace(given, instead))) == [f"{second}: {line.format(A=first)}"]
