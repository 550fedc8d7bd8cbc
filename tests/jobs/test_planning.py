"""What a plan says about SQL and types, and about tables that were made with other declarations."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsar_lakehouse.contracts.checks import Mode, of_mode
from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError, DeclarationsError
from pulsar_lakehouse.jobs.planning import HELD, KEPT, REFUSED, STAYS, Change, approve_all, changes, resolve
from pulsar_lakehouse.jobs.steps import enriching, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pipeline.loading import Project, load
from pulsar_lakehouse.settings import SHIPPED
from pulsar_lakehouse.silver.entity import TIME
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import land_literally, own_home
from tests.messages import item, order, user
from tests.pipeline.conftest import own_modules as own_modules
from tests.pipeline.projects import project, visits_project
from tests.shop import SHOP

IMPORTS = """
from pulsar_lakehouse import Enrichment, Lookup, Match
from pulsar_lakehouse.contracts.checks import fail, quarantine, warn
from pulsar_lakehouse.contracts.topics import Topic
from pulsar_lakehouse.silver.entity import Entity
FIELDS = "id BIGINT NOT NULL, name STRING, at BIGINT, ok BOOLEAN"
"""
ENTITIES = f"""{IMPORTS}
GOOD = Entity(topic=Topic("good", FIELDS), key="id", columns="id, name, ok, array(name) AS names, now() AS since")
TYPO = Entity(topic=Topic("typo", FIELDS), key="id", columns="id, upper(nam) AS name, nofunction(id) AS x")
SYNTAX = Entity(topic=Topic("syntax", FIELDS), key="id", columns="id", deleted_at="timestamp_millis(at")
NUMBER = Entity(topic=Topic("number", FIELDS), key="id", columns="id", deleted_at="at")
MANY = Entity(topic=Topic("many", FIELDS), key="id", columns="id, count(*) AS c, explode(array(1)) AS e")
NOTHING = Entity(topic=Topic("nothing", FIELDS), key="id", columns="id, NULL AS x")
LISTED = Entity(topic=Topic("listed", FIELDS), key="ids", columns="array(id) AS ids, map(id, id) AS m", sequence_by="m")
PAIRS = Entity(topic=Topic("pairs", FIELDS), key=("id", "rate"), columns="id, CAST(id AS DOUBLE) AS rate")
NAMES = Entity(topic=Topic("names", FIELDS), key="name", columns="name, id")
CHECKED = Entity(
    topic=Topic("checked", FIELDS),
    key="id",
    columns="id, name, ok",
    checks={{"typo": warn("length(nam) > 0"), "number": fail("length(name)"), "right": warn("ok OR NULL")}},
)
TIMED = Entity(topic=Topic("timed", FIELDS), key="id", columns="id", occurred_at="at")
TWICE = Entity(topic=Topic("twice", FIELDS), key="id", columns="id, named_struct('city', 1, 'City', id) AS home")
MISTIMED = Entity(topic=Topic("mistimed", FIELDS), key="id", columns="id", occurred_at="happened")
KIND = Entity(topic=Topic("kind", FIELDS, topic="kinds", where="name"), key="id", columns="id")
EACH = Entity(topic=Topic("each", FIELDS, rows="name"), key="id", columns="id")
"""
FACTS = f"""{IMPORTS}
from declarations.entities import GOOD, NAMES, TYPO
COLUMNS = "id, name, timestamp_millis(at) AS time, at, ok, array(id) AS ids"
def facts(topic, **more):
    given = {{"columns": COLUMNS, "keys": ("id",), "event_time": "time", "day": "day", "lookups": (), **more}}
    return Enrichment(topic=Topic(topic, FIELDS), **given)
def joined(topic, **more):
    return facts(topic, lookups=(Lookup(entity=GOOD, **more),))
TIMELESS = facts("timeless", event_time="at", keys=("ids",))
CHECKS = {{"typo": quarantine("nam = ''"), "number": warn("id + 1"), "good": fail("good.id = id")}}
RULES = facts("rules", lookups=(Lookup(entity=GOOD, on="id"),), checks=CHECKS)
OTHER = joined("other", on="name")
MERGED = joined("merged", on="id", merged_into="name")
MERGING = joined("merging", on="id", merged_into="parent_id")
FOLLOWS = facts("follows", lookups=(Lookup(entity=TYPO, on="name"),))
RIGHT = facts("right", lookups=(Lookup(entity=NAMES, on="name", merged_into="CAST(id AS STRING)"),))
WRONG_COLUMN = facts("wrong_column", columns=COLUMNS + ", nam AS x")
MATCHED = facts("matched", matches=(
    Match(entity=GOOD, on="name", by="id", time="ok", within="1 hour"),
    Match(entity=GOOD, on="ids", by="names", time="since", within="1 hour", name="listed"),
))
"""
SQL = {
    "no_column": ("id", "gold.enriched_right", "nam AS id"),
    "no_source": ("id", "gold.enriched_wrong", "id"),
    "no_key": ("key", "gold.enriched_right", "id"),
    "follows_facts": ("id", "gold.enriched_other", "nam AS id"),
    "follows_sql": ("id", "gold.no_column", "id"),
    "right": ("id", "gold.enriched_right", "id, names.id AS names"),
}


COLUMN = "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"
HERE, THERE = "declarations/entities.py", "declarations/facts.py"
MISTAKES = [
    f"{HERE}:9: TYPO: typo: name: upper(nam): {COLUMN}",
    f"{HERE}:9: TYPO: typo: x: nofunction(id): [UNRESOLVED_ROUTINE]",
    f"{HERE}:10: SYNTAX: syntax: deleted_at: CAST(timestamp_millis(at AS TIMESTAMP): [PARSE_SYNTAX_ERROR]",
    f"{HERE}:11: NUMBER: deleted_at: at is bigint: must be a TIMESTAMP, such as a field of type TIMESTAMP_MILLIS",
    f"{HERE}:12: MANY: many: c: count(*): [MISSING_GROUP_BY]",
    f"{HERE}:12: MANY: many: e: explode(array(1)): [UNSUPPORTED_GENERATOR.NESTED_IN_EXPRESSIONS]",
    f"{HERE}:13: NOTHING: nothing: x: NULL: is of type void, which no table can have: CAST it to another",
    f"{HERE}:14: LISTED: sequence_by m is map<bigint,bigint>: must be a number, a text or a time",
    f"{HERE}:14: LISTED: key ids is array<bigint>: must be a number, a text or a time",
    f"{HERE}:15: PAIRS: key rate is double: must be a text, an integer, a boolean or a date",
    f"{HERE}:17: CHECKED: check typo: length(nam) > 0: {COLUMN}",
    f"{HERE}:17: CHECKED: check number: length(name) is int: must be a condition, which is TRUE or not",
    f"{HERE}:23: TIMED: occurred_at: at is bigint: must be a TIMESTAMP, such as a field of type TIMESTAMP_MILLIS",
    f"{HERE}:24: TWICE: twice: home has city twice, as SQL does not tell upper from lower case",
    f"{HERE}:25: MISTIMED: mistimed: occurred_at: happened: {COLUMN}",
    f"{HERE}:26: KIND: kind: where: name is string: must be a condition, which is TRUE or not",
    f"{HERE}:27: EACH: each: rows: name: is string: must be an array",
    f"{THERE}:15: TIMELESS: keys: ids is array<bigint>: must be a number, a text or a time",
    f"{THERE}:15: TIMELESS: event_time: at is bigint: must be a TIMESTAMP, such as a field of type TIMESTAMP_MILLIS",
    f"{THERE}:17: RULES: check typo: nam = '': {COLUMN}",
    f"{THERE}:17: RULES: check number: id + 1 is bigint: must be a condition, which is TRUE or not",
    f"{THERE}:18: OTHER: lookup good: name is string, but id of good is bigint",
    f"{THERE}:19: MERGED: lookup good: merged_into: name is string: must be bigint, as id of good is",
    f"{THERE}:20: MERGING: lookup good: merged_into: parent_id: {COLUMN}",
    f"{THERE}:23: WRONG_COLUMN: wrong_column: x: nam: {COLUMN}",
    f"{THERE}:24: MATCHED: match good: name is string, but id of good is bigint",
    f"{THERE}:24: MATCHED: match good: time: ok is boolean: {TIME}",
    f"{THERE}:24: MATCHED: match listed: by names is array<string>: must be a text, an integer, a boolean or a date",
    f"declarations/sql/no_column.sql:3: {COLUMN}",
    "declarations/sql/no_key.sql:1: keys: key is not a column of the SELECT",
    "declarations/sql/no_source.sql:4: gold.enriched_wrong: no such table; declared tables:",
]


def test_all_mistakes_that_spark_finds_are_told_at_once(lake: Lake, tmp_path: Path) -> None:
    folder = project(tmp_path, entities=ENTITIES, facts=FACTS)
    for name, (keys, source, columns) in SQL.items():
        header = f"-- keys: {keys}\n-- refresh: full\n"
        (folder / "sql" / f"{name}.sql").write_text(f"{header}SELECT {columns}\nFROM {source}\n")
    with pytest.raises(DeclarationsError) as error:
        resolve(Lake(lake.spark, own_home(lake.settings, tmp_path)), load(folder))
    assert [re.sub(r"(\[[A-Z_.]+\]|declared tables:).*", r"\1", line) for line in error.value.mistakes] == MISTAKES


ADDED = "the next run adds it; it is NULL in rows from before"
QUARANTINED = of_mode(ORDERS.checks, Mode.QUARANTINE)
ON_USER = f"users on user_id, latest, {{}}, merged into {ORDERS.lookups[0].merged_into}, at most 100"


def shop(**others: Any) -> Project:
    """The shop with other declarations."""
    return Project(pipeline=replace(SHOP, **others), places=load(SHIPPED).places)


def test_a_project_without_mistakes_has_none(lake: Lake, tmp_path: Path) -> None:
    declared = load(visits_project(tmp_path))
    project = own_home(lake.settings, tmp_path)
    found = changes(Lake(lake.spark, project), declared, resolve(Lake(lake.spark, project), declared))
    assert {name: [each.what for each in of_table] for name, of_table in found.items()} == {
        "silver.visitors": ["new"],
        "silver.visitors_history": ["new"],
        "gold.enriched_visits": ["new"],
        "gold.counts": ["new"],
    }


def test_what_would_change_in_tables_that_exist(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    land_literally(Lake(lake.spark, project), [user(1), item(1), order(1, place=1)])
    catch_up(project, merging(Lake(lake.spark, project), [USERS, ITEMS]))
    catch_up(project, enriching(Lake(lake.spark, project), [ORDERS]))

    def planned(**others: Any) -> dict[str, list[Change]]:
        declared = shop(**others, sql_tables=())
        return changes(Lake(lake.spark, project), declared, resolve(Lake(lake.spark, project), declared))

    assert {name for name, found in planned().items() if found} == set()
    columns = {
        **USERS.columns,
        "first_name": "upper(firstName)",
        "name": "lastName",
        "created_at": "unix_millis(createdAt)",
    }
    del columns["last_name"]
    users = replace(USERS, columns=columns, sequence_by="created_at", checks={})
    on_user = replace(ORDERS.lookups[0], entity=users, required=False)
    orders = replace(ORDERS, lookups=(on_user, ORDERS.lookups[1]), keys=("line_item_id",), checks={})
    found = planned(entities=(users, ITEMS), enrichments=(orders,))
    assert {name: [(each.what, each.then) for each in of_table] for name, of_table in found.items()} == {
        "silver.users": [
            ("created_at is bigint instead of timestamp", REFUSED),
            ("last_name is probably renamed to name", HELD),
            ("sequence_by: unix_millis(createdAt) AS created_at instead of none", REFUSED),
            ("column first_name: upper(firstName) instead of firstName", KEPT),
        ],
        "silver.items": [],
        "gold.enriched_orders": [
            ("user.created_at is bigint instead of timestamp", REFUSED),
            ("user.name string is added", ADDED),
            ("user.last_name string is no longer declared", STAYS),
            ("keys: line_item_id instead of invoice_id, line_item_id", REFUSED),
            (f"lookup user: {ON_USER.format('not required')} instead of {ON_USER.format('required')}", KEPT),
            ("lookup user: sequence_by: unix_millis(createdAt) AS created_at instead of none", KEPT),
            ("lookup user: column first_name: upper(firstName) instead of firstName", KEPT),
            *((f"check {name}: none instead of {check.sql}", KEPT) for name, check in QUARANTINED.items()),
        ],
    }
    assert {each.rebuild for of_table in found.values() for each in of_table} == {
        *("", "silver.users", "gold.enriched_orders")
    }


def test_no_run_loses_values_before_that_is_approved(lake: Lake, tmp_path: Path) -> None:
    """The table that would is left as it is, and the others go on."""
    project = own_home(lake.settings, tmp_path)
    lake = Lake(lake.spark, project)
    land_literally(lake, [user(1), item(1)])
    catch_up(project, merging(lake, [USERS, ITEMS]))
    land_literally(lake, [user(2, place=1), item(2, place=1)])
    columns = {"name" if name == "last_name" else name: sql for name, sql in USERS.columns.items()}
    users = replace(USERS, columns=columns)
    on_user = replace(ORDERS.lookups[0], entity=users)
    declared = shop(
        entities=(users, ITEMS),
        enrichments=(replace(ORDERS, lookups=(on_user, ORDERS.lookups[1])),),
        sql_tables=(),
    )

    def rows() -> dict[str, int]:
        return {each.table.name: lake.table(each.table.name).read().count() for each in (USERS, ITEMS)}

    with pytest.raises(ConfigurationError) as error:
        catch_up(project, merging(lake, [users, ITEMS]))
    assert str(error.value) == (
        "silver.users: last_name is probably renamed to name: new rows would have NULL there: declare it as before, "
        "run `lakehouse rebuild silver.users --approve`, or accept that by `lakehouse plan --approve`"
    )
    assert rows() == {"silver.users": 1, "silver.items": 2}
    losing = [each for of_table in changes(lake, declared, {}).values() for each in of_table if each.loses]
    assert [(each.table, each.what) for each in losing] == [("silver.users", "last_name is probably renamed to name")]
    assert list(approve_all(lake, declared, {})) == [
        "silver.users: approved that new rows have NULL in last_name",
        "silver.users_history: approved that new rows have NULL in last_name",
    ]
    catch_up(project, merging(lake, [users, ITEMS]))
    assert rows() == {"silver.users": 2, "silver.items": 2}
    assert not [each for of_table in changes(lake, declared, {}).values() for each in of_table if each.loses]
