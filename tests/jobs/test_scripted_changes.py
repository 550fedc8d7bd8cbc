"""What a plan says of each change of a small project: what it does to a table, and what it concerns downstream.

All of it follows from the declarations before and after, so nothing here starts Spark.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pulsar_lakehouse.gold.enrichment.declaration import FIXED as FIXED_IN_GOLD
from pulsar_lakehouse.gold.sql.statements import parse
from pulsar_lakehouse.jobs.planning import Change, compared, with_downstream
from pulsar_lakehouse.pipeline.declared import Pipeline
from pulsar_lakehouse.pipeline.loading import load
from pulsar_lakehouse.silver.entity import FIXED
from pulsar_lakehouse.tables.evolution import ColumnChange
from tests.pipeline.conftest import own_modules as own_modules

STATE = """
from pulsar_lakehouse import Entity, Topic, quarantine, warn

OWNERS = Entity(
    topic=Topic("owners", "id BIGINT NOT NULL, name STRING", changelog=True),
    key="id",
    columns="id, name",
)
STORES = Entity(
    topic=Topic("stores", "id BIGINT NOT NULL, city STRING, size INT, ownerId BIGINT, closedAt TIMESTAMP"),
    key="id",
    columns="id, city, size, ownerId AS owner_id, upper(city) AS sign",
    deleted_at="closedAt",
    checks={"size_is_there": quarantine("size > 0")},
)
"""
FACTS = """
from declarations.state import OWNERS, STORES
from pulsar_lakehouse import Enrichment, Lookup, Topic, quarantine, warn

SALES = Enrichment(
    topic=Topic("sales", "id BIGINT NOT NULL, storeId BIGINT, cents BIGINT, note STRING, soldAt TIMESTAMP NOT NULL"),
    columns="id, storeId AS store_id, cents / 100 AS price, note, soldAt AS sold_at",
    keys=("id",),
    event_time="sold_at",
    day="sale_date",
    lookups=(
        Lookup(entity=STORES, on="store_id", name="store"),
        Lookup(entity=OWNERS, on="store.owner_id", name="owner"),
    ),
    checks={"price_is_an_amount": quarantine("price >= 0")},
    publish_to="enriched_sales",
)
"""
REVENUE = """-- Revenue of each city.
-- keys: city
-- refresh: incremental
-- publish: topic revenue_by_city, postgres revenue
SELECT coalesce(store.city, 'unknown') AS city, sum(price) AS revenue, count(*) AS sales
FROM gold.enriched_sales
WHERE price > 0
GROUP BY coalesce(store.city, 'unknown')
"""
NOTES = """-- keys: id
-- refresh: incremental
SELECT s.id, s.note, s.store.sign AS sign FROM gold.enriched_sales AS s
"""
LARGE = """-- keys: city
-- refresh: full
SELECT city, revenue FROM gold.revenue_by_city WHERE sales > 10
"""
FILES = {
    "state.py": STATE,
    "facts.py": FACTS,
    "sql/revenue_by_city.sql": REVENUE,
    "sql/notes.sql": NOTES,
    "sql/large_cities.sql": LARGE,
}


def written(folder: Path, *edits: tuple[str, str]) -> Pipeline:
    """The project with texts replaced, wherever they are."""
    files = dict(FILES)
    for given, instead in edits:
        assert any(given in text for text in files.values()), given
        files = {name: text.replace(given, instead) for name, text in files.items()}
    for name, text in files.items():
        file = folder / "declarations" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return load(folder / "declarations").pipeline


def definitions(pipeline: Pipeline) -> dict[str, Mapping[str, str]]:
    return {
        **{each.table.name: each.definition for each in pipeline.entities},
        **{each.gold_table: each.definition for each in pipeline.enrichments},
        **{each.name: parse(each).definition([*parse(each).projections]) for each in pipeline.sql_tables},
    }


def differing(kept: Mapping[str, str], declared: Mapping[str, str]) -> Iterator[ColumnChange]:
    """The columns that come and go. Types are known to Spark only."""
    for name in dict.fromkeys((*declared, *kept)):
        if (name in kept) != (name in declared) and name.startswith(("column ", "lookup ")):
            what, _, field = name.partition(": ")
            path = (what.split()[1], *([field.split()[1]] if field.startswith("column ") else []))
            is_fixed = f"{path[0]}" in (*declared.get("sequence_by", "").split(), *declared.get("key", "").split())
            if (not field and not is_fixed) or (field.startswith("column ") and what in kept and what in declared):
                yield path, *(("type", None) if name in kept else (None, "type"))


def planned(old: Mapping[str, Mapping[str, str]], after: Pipeline) -> list[str]:
    """A line for each change: the table, what it does, whether it loses values, and what it concerns."""
    lines, found = list[str](), list[Change]()
    fixed = {each.table.name: FIXED for each in after.entities} | {
        each.gold_table: FIXED_IN_GOLD for each in after.enrichments
    }
    joined = {each.gold_table: [lookup.name for lookup in each.lookups] for each in after.enrichments}
    for table, declared in definitions(after).items():
        kept, step = old.get(table), "run" if table in fixed else "refresh"
        if kept is None:
            lines.append(f"{table}: new")
            continue
        own, columns = fixed.get(table, ()), differing(kept, declared)
        found += compared(table, kept, declared, columns, fixed=own, joined=joined.get(table, ()), step=step)
    for each in with_downstream(after, found):
        behind = ", ".join(f"{name}({' '.join(columns)})" for name, columns in each.downstream.items())
        loses = " LOSES" if each.loses else ""
        lines.append(f"{each.table}: {each.kind}{loses}: {each.what} > {behind or 'nothing'}")
    return lines


BEHIND_REVENUE = "gold.large_cities(), topic revenue_by_city(), postgres revenue()"
BEHIND_FACTS = (
    "gold.revenue_by_city(), gold.large_cities(), gold.notes(), topic enriched_sales(), topic revenue_by_city(), "
    "postgres revenue()"
)
BEHIND_STATE = f"gold.enriched_sales(), {BEHIND_FACTS}"
OTHER_ROWS = "other rows: another FROM, JOIN, WHERE or GROUP BY"


@pytest.mark.parametrize(
    ("edits", "lines"),
    [
        ([('columns="id, name",', 'columns="id,   name",')], []),
        ([("-- Revenue of each city.", "-- Revenue by city.\n-- More.")], []),
        ([("sum(price) AS revenue", "SUM(price) as revenue")], []),
        ([("OWNERS = Entity(", "OWNERS_ = 1\nOWNERS = Entity(")], []),
        ([('deleted_at="closedAt",', 'deleted_at="closedAt", keep_deleted=10,')], []),
        ([('checks={"size_is_there": quarantine("size > 0")}', "checks={\"size_is_there\": quarantine(\"size > 0\"), \"city\": warn(\"city > ''\")}")], []),
        ([("upper(city) AS sign", "upper( city ) AS sign")], []),
        ([('columns="id, city, size,', 'columns="id, size, city,')], []),
        ([('keys=("id",),', 'keys=("id",), retry_days=3,')], []),
        ([("id BIGINT NOT NULL, name STRING", "id BIGINT NOT NULL, name STRING, born DATE")], []),
        ([('columns="id, name"', 'columns="id, name, length(name) AS letters"')], ["silver.owners: additive: letters type is added > nothing", "gold.enriched_sales: additive: owner.letters type is added > nothing"]),
        ([('note, soldAt AS sold_at"', 'note, soldAt AS sold_at, cents"')], ["gold.enriched_sales: additive: cents type is added > nothing"]),
        ([("count(*) AS sales", "count(*) AS sales, max(price) AS most")], ["gold.revenue_by_city: additive: most type is added > nothing"]),
        ([("OWNERS = Entity(", "PEOPLE = Entity(topic=Topic(\"people\", \"id BIGINT\", changelog=True), key=\"id\", columns=\"id\")\nOWNERS = Entity(")], ["silver.people: new"]),
        ([('name="owner"),', "name=\"owner\"),\n        Lookup(entity=OWNERS, on=\"id\", name=\"seller\", required=False),")], ["gold.enriched_sales: additive: seller type is added > nothing", "gold.enriched_sales: additive: lookup seller: owners on id, latest, not required instead of none > nothing"]),
        ([('name="owner"),', "name=\"owner\"),\n        Lookup(entity=OWNERS, on=\"id\", name=\"seller\"),")], ["gold.enriched_sales: additive: seller type is added > nothing", f"gold.enriched_sales: breaking: lookup seller: owners on id, latest, required instead of none > {BEHIND_FACTS}"]),
        ([('"id, city, size', '"id, city AS town, size'), ("store.city", "store.town")], ["silver.stores: partial LOSES: city is probably renamed to town > gold.enriched_sales(store.city store.town), gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city store.town), topic revenue_by_city(), postgres revenue()", "gold.enriched_sales: additive: store.town type is added > nothing", "gold.enriched_sales: partial: store.city type is no longer declared > topic enriched_sales(store.city)", f"gold.revenue_by_city: breaking: column city: COALESCE(store.town, 'unknown') instead of COALESCE(store.city, 'unknown') > {BEHIND_REVENUE}", f"gold.revenue_by_city: breaking: {OTHER_ROWS} > {BEHIND_REVENUE}"]),
        ([('"id, city, size', '"id, city AS town, size')], ["silver.stores: partial LOSES: city is probably renamed to town > gold.enriched_sales(store.city store.town), gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city store.town), topic revenue_by_city(), postgres revenue()", "gold.enriched_sales: additive: store.town type is added > nothing", "gold.enriched_sales: partial: store.city type is no longer declared > gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city), topic revenue_by_city(), postgres revenue()"]),
        ([("city STRING", "town STRING"), ('"id, city, size', '"id, town, size'), ("upper(city)", "upper(town)"), ("store.city", "store.town")], ["silver.stores: partial LOSES: city is probably renamed to town > gold.enriched_sales(store.city store.town), gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city store.town), topic revenue_by_city(), postgres revenue()", "silver.stores: partial: column sign: upper(town) instead of upper(city) > gold.enriched_sales(store.sign), gold.notes(sign), topic enriched_sales(store.sign)", "gold.enriched_sales: additive: store.town type is added > nothing", "gold.enriched_sales: partial: store.city type is no longer declared > topic enriched_sales(store.city)", "gold.enriched_sales: partial: lookup store: column sign: upper(town) instead of upper(city) > gold.notes(sign), topic enriched_sales(store.sign)", f"gold.revenue_by_city: breaking: column city: COALESCE(store.town, 'unknown') instead of COALESCE(store.city, 'unknown') > {BEHIND_REVENUE}", f"gold.revenue_by_city: breaking: {OTHER_ROWS} > {BEHIND_REVENUE}"]),
        ([('"id, city, size', '"id, trim(city) AS town, size'), ("store.city", "store.town")], ["silver.stores: partial LOSES: city is probably renamed to town > gold.enriched_sales(store.city store.town), gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city store.town), topic revenue_by_city(), postgres revenue()", "gold.enriched_sales: additive: store.town type is added > nothing", "gold.enriched_sales: partial: store.city type is no longer declared > topic enriched_sales(store.city)", f"gold.revenue_by_city: breaking: column city: COALESCE(store.town, 'unknown') instead of COALESCE(store.city, 'unknown') > {BEHIND_REVENUE}", f"gold.revenue_by_city: breaking: {OTHER_ROWS} > {BEHIND_REVENUE}"]),
        ([('AS sign",', 'AS label",'), ("store.sign", "store.label")], ["silver.stores: partial LOSES: sign is probably renamed to label > gold.enriched_sales(store.label store.sign), gold.notes(sign), topic enriched_sales(store.label store.sign)", "gold.enriched_sales: additive: store.label type is added > nothing", "gold.enriched_sales: partial: store.sign type is no longer declared > topic enriched_sales(store.sign)", "gold.notes: partial: column sign: s.store.label instead of s.store.sign > nothing"]),
        ([('"id, city, size, ownerId AS owner_id, upper(city) AS sign"', '"id, upper(city) AS city, size, ownerId AS owner_id, city AS sign"')], ["silver.stores: partial: column city: upper(city) instead of city > gold.enriched_sales(store.city), gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city), topic revenue_by_city(), postgres revenue()", "silver.stores: partial: column sign: city instead of upper(city) > gold.enriched_sales(store.sign), gold.notes(sign), topic enriched_sales(store.sign)", "gold.enriched_sales: partial: lookup store: column city: upper(city) instead of city > gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city), topic revenue_by_city(), postgres revenue()", "gold.enriched_sales: partial: lookup store: column sign: city instead of upper(city) > gold.notes(sign), topic enriched_sales(store.sign)"]),
        ([("cents / 100 AS price", "cents / 100 AS amount"), ("sum(price)", "sum(amount)"), ("WHERE price", "WHERE amount"), ('quarantine("price', 'quarantine("amount')], [f"gold.enriched_sales: breaking LOSES: price is probably renamed to amount > {BEHIND_FACTS}", f"gold.enriched_sales: breaking: check price_is_an_amount: amount >= 0 instead of price >= 0 > {BEHIND_FACTS}", "gold.revenue_by_city: partial: column revenue: SUM(amount) instead of SUM(price) > gold.large_cities(revenue), topic revenue_by_city(revenue), postgres revenue(revenue)", f"gold.revenue_by_city: breaking: {OTHER_ROWS} > {BEHIND_REVENUE}"]),
        ([("sum(price) AS revenue", "sum(price) AS turnover"), ("SELECT city, revenue", "SELECT city, turnover")], ["gold.revenue_by_city: partial LOSES: revenue is probably renamed to turnover > gold.large_cities(turnover), topic revenue_by_city(revenue turnover), postgres revenue(revenue turnover)", "gold.large_cities: additive: turnover type is added > nothing", "gold.large_cities: partial LOSES: revenue type is no longer declared > nothing"]),
        ([("cents / 100 AS price, note,", "cents / 100 AS price, note AS remark,"), ("s.note", "s.remark AS note")], ["gold.enriched_sales: partial LOSES: note is probably renamed to remark > gold.notes(note), topic enriched_sales(note remark)", "gold.notes: partial: column note: s.remark instead of s.note > nothing"]),
        ([("key=\"id\",\n    columns=\"id, name\"", "key=\"owner\",\n    columns=\"id AS owner, name\"")], [f"silver.owners: breaking: key: id AS owner instead of id > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup owner: key: id AS owner instead of id > {BEHIND_FACTS}"]),
        ([(', upper(city) AS sign"', '"'), ("s.store.sign AS sign", "'' AS sign")], ["silver.stores: partial LOSES: sign type is no longer declared > gold.enriched_sales(store.sign), topic enriched_sales(store.sign)", "gold.enriched_sales: partial: store.sign type is no longer declared > topic enriched_sales(store.sign)", "gold.notes: partial: column sign: '' instead of s.store.sign > nothing"]),
        ([("price, note,", "price,"), ("s.note, ", "'' AS note, ")], ["gold.enriched_sales: partial LOSES: note type is no longer declared > topic enriched_sales(note)", "gold.notes: partial: column note: '' instead of s.note > nothing"]),
        ([("s.note, ", "")], ["gold.notes: partial LOSES: note type is no longer declared > nothing"]),
        ([("-- keys: city\n-- refresh: full", "-- keys: city\n-- refresh: incremental")], []),
        ([("upper(city) AS sign", "NULL AS sign")], ["silver.stores: partial LOSES: column sign: NULL instead of upper(city) > gold.enriched_sales(store.sign), gold.notes(sign), topic enriched_sales(store.sign)", "gold.enriched_sales: partial: lookup store: column sign: NULL instead of upper(city) > gold.notes(sign), topic enriched_sales(store.sign)"]),
        ([("price, note,", "price, CAST(NULL AS STRING) AS note,")], ["gold.enriched_sales: partial LOSES: column note: CAST(NULL AS STRING) instead of note > gold.notes(note), topic enriched_sales(note)"]),
        ([("s.note, ", "NULL AS note, ")], ["gold.notes: partial LOSES: column note: NULL instead of s.note > nothing"]),
        ([("        Lookup(entity=OWNERS, on=\"store.owner_id\", name=\"owner\"),\n", "")], ["gold.enriched_sales: partial LOSES: owner type is no longer declared > topic enriched_sales(owner)"]),
        ([('name="owner"', 'name="keeper"')], ["gold.enriched_sales: partial LOSES: owner is probably renamed to keeper > topic enriched_sales(keeper owner)"]),
        ([("upper(city) AS sign", "lower(city) AS sign")], ["silver.stores: partial: column sign: lower(city) instead of upper(city) > gold.enriched_sales(store.sign), gold.notes(sign), topic enriched_sales(store.sign)", "gold.enriched_sales: partial: lookup store: column sign: lower(city) instead of upper(city) > gold.notes(sign), topic enriched_sales(store.sign)"]),
        ([('"id, city, size', '"id, trim(city) AS city, size')], ["silver.stores: partial: column city: trim(city) instead of city > gold.enriched_sales(store.city), gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city), topic revenue_by_city(), postgres revenue()", "gold.enriched_sales: partial: lookup store: column city: trim(city) instead of city > gold.revenue_by_city(), gold.large_cities(), topic enriched_sales(store.city), topic revenue_by_city(), postgres revenue()"]),
        ([("city, size, ownerId", "city, size * 2 AS size, ownerId")], [f"silver.stores: breaking: column size: size * 2 instead of size > {BEHIND_STATE}", "gold.enriched_sales: partial: lookup store: column size: size * 2 instead of size > topic enriched_sales(store.size)"]),
        ([("ownerId AS owner_id", "nullif(ownerId, 0) AS owner_id")], [f"silver.stores: partial: column owner_id: nullif(ownerId, 0) instead of ownerId > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup store: column owner_id: nullif(ownerId, 0) instead of ownerId > {BEHIND_FACTS}"]),
        ([("cents / 100 AS price", "cents / 1000 AS price")], [f"gold.enriched_sales: breaking: column price: cents / 1000 instead of cents / 100 > {BEHIND_FACTS}"]),
        ([("price, note,", "price, trim(note) AS note,")], ["gold.enriched_sales: partial: column note: trim(note) instead of note > gold.notes(note), topic enriched_sales(note)"]),
        ([("storeId AS store_id", "nullif(storeId, 0) AS store_id")], [f"gold.enriched_sales: breaking: column store_id: nullif(storeId, 0) instead of storeId > {BEHIND_FACTS}"]),
        ([("soldAt AS sold_at", "soldAt + INTERVAL 1 HOUR AS sold_at")], [f"gold.enriched_sales: breaking: column sold_at: soldAt + INTERVAL 1 HOUR instead of soldAt > {BEHIND_FACTS}"]),
        ([('columns="id, storeId', 'columns="id + 1 AS id, storeId')], [f"gold.enriched_sales: breaking: column id: id + 1 instead of id > {BEHIND_FACTS}"]),
        ([('columns="id, city', 'columns="id + 1 AS id, city')], [f"silver.stores: breaking: key: id + 1 AS id instead of id > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup store: key: id + 1 AS id instead of id > {BEHIND_FACTS}"]),
        ([('deleted_at="closedAt"', 'deleted_at="NULL"')], [f"silver.stores: breaking: deleted_at: NULL instead of closedAt > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup store: deleted_at: NULL instead of closedAt > {BEHIND_FACTS}"]),
        ([('deleted_at="closedAt"', 'deleted_at="closedAt", occurred_at="closedAt"')], [f"silver.stores: breaking: occurred_at: closedAt instead of none > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup store: occurred_at: closedAt instead of none > {BEHIND_FACTS}"]),
        ([('deleted_at="closedAt"', 'deleted_at="closedAt", sequence_by="size"')], [f"silver.stores: breaking: sequence_by: size instead of none > {BEHIND_STATE}", "gold.enriched_sales: partial: store.size type is no longer declared > topic enriched_sales(store.size)", f"gold.enriched_sales: breaking: lookup store: sequence_by: size instead of none > {BEHIND_FACTS}"]),
        ([('    columns="id, name",', '    columns="id, name", ignore_null_updates=True,')], [f"silver.owners: breaking: ignore_null_updates: True instead of False > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup owner: ignore_null_updates: True instead of False > {BEHIND_FACTS}"]),
        ([("size > 0", "size > 1")], [f"silver.stores: breaking: check size_is_there: size > 1 instead of size > 0 > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup store: check size_is_there: size > 1 instead of size > 0 > {BEHIND_FACTS}"]),
        ([("price >= 0", "price > 0 OR price = 0")], [f"gold.enriched_sales: breaking: check price_is_an_amount: price > 0 OR price = 0 instead of price >= 0 > {BEHIND_FACTS}"]),
        ([('quarantine("price', 'warn("price')], [f"gold.enriched_sales: breaking: check price_is_an_amount: none instead of price >= 0 > {BEHIND_FACTS}"]),
        ([('soldAt TIMESTAMP NOT NULL"),', 'soldAt TIMESTAMP NOT NULL", topic="shop-events", where="cents > 0"),')], [f"gold.enriched_sales: breaking: where: cents > 0 instead of none > {BEHIND_FACTS}"]),
        ([('soldAt TIMESTAMP NOT NULL"),', 'soldAt TIMESTAMP NOT NULL", rows="split(note, \',\')"),')], [f"gold.enriched_sales: breaking: rows of messages: split(note, ',') instead of none > {BEHIND_FACTS}"]),
        ([('keys=("id",)', 'keys=("id", "store_id")')], [f"gold.enriched_sales: breaking: keys: id, store_id instead of id > {BEHIND_FACTS}"]),
        ([('day="sale_date"', 'day="sold_on"')], [f"gold.enriched_sales: breaking: day: sold_on instead of sale_date > {BEHIND_FACTS}"]),
        ([('event_time="sold_at"', 'event_time="later"'), ("soldAt AS sold_at", "soldAt AS sold_at, soldAt AS later")], ["gold.enriched_sales: additive: later type is added > nothing", f"gold.enriched_sales: breaking: event_time: later instead of sold_at > {BEHIND_FACTS}"]),
        ([('on="store_id", name="store"', 'on="store_id", name="store", required=False'), ('name="owner"', 'name="owner", required=False')], [f"gold.enriched_sales: breaking: lookup store: stores on store_id, latest, not required instead of stores on store_id, latest, required > {BEHIND_FACTS}", f"gold.enriched_sales: breaking: lookup owner: owners on store.owner_id, latest, not required instead of owners on store.owner_id, latest, required > {BEHIND_FACTS}"]),
        ([('Lookup(entity=OWNERS, on="store.owner_id"', 'Lookup(entity=OWNERS, on="store_id"')], [f"gold.enriched_sales: breaking: lookup owner: owners on store_id, latest, required instead of owners on store.owner_id, latest, required > {BEHIND_FACTS}"]),
        ([('on="store_id", name="store"', 'on="store_id", name="store", join="as_of"')], [f"gold.enriched_sales: breaking: lookup store: stores on store_id, as_of, required instead of stores on store_id, latest, required > {BEHIND_FACTS}"]),
        ([("size INT", "size BIGINT")], [f"silver.stores: breaking: field size: bigint instead of int > {BEHIND_STATE}", f"gold.enriched_sales: breaking: lookup store: field size: bigint instead of int > {BEHIND_FACTS}"]),
        ([("cents BIGINT", "cents INT")], [f"gold.enriched_sales: breaking: field cents: int instead of bigint > {BEHIND_FACTS}"]),
        ([("sum(price)", "avg(price)")], ["gold.revenue_by_city: partial: column revenue: AVG(price) instead of SUM(price) > gold.large_cities(revenue), topic revenue_by_city(revenue), postgres revenue(revenue)"]),
        ([("WHERE price > 0", "WHERE price > 1")], [f"gold.revenue_by_city: breaking: {OTHER_ROWS} > {BEHIND_REVENUE}"]),
        ([("coalesce(store.city, 'unknown')", "coalesce(store.city, 'none')")], [f"gold.revenue_by_city: breaking: column city: COALESCE(store.city, 'none') instead of COALESCE(store.city, 'unknown') > {BEHIND_REVENUE}", f"gold.revenue_by_city: breaking: {OTHER_ROWS} > {BEHIND_REVENUE}"]),
        ([("-- keys: id", "-- keys: id, sign")], ["gold.notes: breaking: keys: id, sign instead of id > nothing"]),
        ([("FROM gold.enriched_sales AS s", "FROM gold.enriched_sales AS s WHERE s.id > 0")], [f"gold.notes: breaking: {OTHER_ROWS} > nothing"]),
        ([("-- publish", "-- check many (quarantine): sales > 1\n-- publish")], [f"gold.revenue_by_city: breaking: check many: sales > 1 instead of none > {BEHIND_REVENUE}"]),
        ([("SELECT city, revenue", "SELECT upper(city) AS city, revenue")], ["gold.large_cities: breaking: column city: UPPER(city) instead of city > nothing"]),
    ],
)  # fmt: skip
def test_a_change_is_told_with_all_that_it_concerns(
    tmp_path: Path, edits: list[tuple[str, str]], lines: list[str]
) -> None:
    before = definitions(written(tmp_path / "before"))
    assert planned(before, written(tmp_path / "after", *edits)) == lines


FUNCTION = """from pulsar_lakehouse import function

@function("text STRING", returns="STRING")
def shout(text):
    return text  # loud
"""
CALLS = ("upper(city) AS sign", "shout(city) AS sign")


@pytest.mark.parametrize(
    ("instead", "edits", "lines"),
    [
        ("# aloud", [CALLS], []),
        ("", [CALLS], ["silver.stores: partial: * > gold.enriched_sales(store.sign), gold.notes(sign), topic enriched_sales(store.sign)", "gold.enriched_sales: partial: lookup store: * > gold.notes(sign), topic enriched_sales(store.sign)"]),
        ("", [("note, soldAt", "shout(note) AS note, soldAt")], ["gold.enriched_sales: partial: * > gold.notes(note), topic enriched_sales(note)"]),
        ("", [('quarantine("price >= 0")', "quarantine(\"shout(note) != ''\")")], [f"gold.enriched_sales: breaking: * > {BEHIND_FACTS}"]),
        ("", [("coalesce(store.city, 'unknown')", "shout(store.city)")], [f"gold.revenue_by_city: breaking: * > {BEHIND_REVENUE}"]),
        ("", [], []),
    ],
)  # fmt: skip
def test_a_function_that_is_another_one_is_told_with_all_that_it_concerns(
    tmp_path: Path, instead: str, edits: list[tuple[str, str]], lines: list[str]
) -> None:
    function = FUNCTION.replace("  # loud", f"  {instead}" if instead else " + '!'")
    for folder, text in (("before", FUNCTION), ("after", function)):
        (tmp_path / folder / "declarations").mkdir(parents=True)
        (tmp_path / folder / "declarations" / "functions.py").write_text(text)
    before = definitions(written(tmp_path / "before", *edits))
    told = planned(before, written(tmp_path / "after", *edits))
    another = "function shout: another one, at after/declarations/functions.py:3"
    assert told == [line.replace("*", another) for line in lines]
