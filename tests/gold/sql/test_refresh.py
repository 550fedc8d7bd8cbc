"""For any changes in any batches: a declared table is what its SELECT yields for all rows, in plain Python."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pulsar_lakehouse.domains.favorites.declarations.changelogs import ACCOUNT_USERS, FAVORITE_CHEESES, FAVORITE_COLORS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS as ORDERS_ENRICHED
from pulsar_lakehouse.errors import ConfigurationError, LakehouseError
from pulsar_lakehouse.gold.sql import refresh as refreshing
from pulsar_lakehouse.gold.sql.checking import check_declarations
from pulsar_lakehouse.gold.sql.declaration import SqlTable, declared_in, read_declaration
from pulsar_lakehouse.gold.sql.refresh import gold_table, refresh
from pulsar_lakehouse.gold.sql.statements import narrow, parse, touched
from pulsar_lakehouse.inspection.table_status import table_statuses
from pulsar_lakehouse.jobs.steps import declared_columns
from pulsar_lakehouse.pipeline.loading import refuse
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import Table
from pulsar_lakehouse.tables.definitions import approve_losses
from pulsar_lakehouse.tables.lake import Lake
from tests.crashes import fail_after
from tests.lake import own_home, read
from tests.messages import at
from tests.shop import SHOP, SQL_TABLES

pytestmark = pytest.mark.usefixtures("generated_code")

FAVORITES = Path(__file__).parents[3] / "pulsar_lakehouse" / "domains" / "favorites" / "declarations" / "sql"
TABLES = {table.name: table for table in (*SQL_TABLES, *declared_in(FAVORITES))}

WITH_FEED = {"delta.enableChangeDataFeed": "true"}
ORDERS = Table(
    name="gold.enriched_orders",
    columns="line_item_id BIGINT, price DOUBLE, created_at TIMESTAMP, item STRUCT<category: STRING>",
    properties=WITH_FEED,
)
CHANGELOGS = {"users": ACCOUNT_USERS, "colors": FAVORITE_COLORS, "cheeses": FAVORITE_CHEESES}

Rows = list[dict[str, Any]]
Change = tuple[str, int, Any]
State = Mapping[str, Mapping[int, Any]]
"""The current values, by source and key: (category, minute, cents) of an order, the single value of the others."""

HOUR, DAY, QUARTER, GAP = timedelta(hours=1), timedelta(days=1), timedelta(minutes=15), timedelta(minutes=30)


def orders_in(windows: Callable[[datetime], Iterator[tuple[datetime, datetime]]], state: State) -> Rows:
    found = defaultdict(list)
    for category, minute, cents in state["orders"].values():
        for window in windows(at(minute)):
            found[(category or "none", *window)].append(cents)
    return [totals(*key, cents) for key, cents in found.items()]


def totals(category: str, start: datetime, end: datetime, cents: list[int]) -> dict[str, Any]:
    times = {"window_start": start, "window_end": end}
    return {"category": category, **times, "orders": len(cents), "revenue": Decimal(sum(cents)) / 100}


def tumbling(moment: datetime) -> Iterator[tuple[datetime, datetime]]:
    start = moment.replace(minute=0)
    yield start, start + HOUR


def sliding(moment: datetime) -> Iterator[tuple[datetime, datetime]]:
    last = moment.replace(minute=moment.minute // 15 * 15)
    for back in range(4):
        yield last - back * QUARTER, last - back * QUARTER + HOUR


def cumulative(moment: datetime) -> Iterator[tuple[datetime, datetime]]:
    day = moment.replace(hour=0, minute=0)
    for hour in range(moment.hour + 1, 25):
        yield day, day + hour * HOUR


def sessions(state: State) -> Rows:
    by_category = defaultdict(list)
    for category, minute, cents in state["orders"].values():
        by_category[category or "none"].append((at(minute), cents))
    found: list[tuple[str, list[tuple[datetime, int]]]] = []
    for category, orders in by_category.items():
        for order in sorted(orders):
            if found and found[-1][0] == category and order[0] < found[-1][1][-1][0] + GAP:
                found[-1][1].append(order)
            else:
                found.append((category, [order]))
    return [totals(name, each[0][0], each[-1][0] + GAP, [cents for _, cents in each]) for name, each in found]


def user_counts(state: State) -> Rows:
    accounts = list(state["users"].values())
    return [{"account_id": account, "users": accounts.count(account)} for account in set(accounts)]


def favorites(state: State) -> Rows:
    found = {"color": state["colors"], "cheese": state["cheeses"]}
    return [
        {"user_id": user, "name": f"user of {account}", **{name: given.get(user) for name, given in found.items()}}
        for user, account in state["users"].items()
    ]


ORACLE: Mapping[str, Callable[[State], Rows]] = {
    "gold.revenue_by_hour": partial(orders_in, tumbling),
    "gold.revenue_of_the_last_hour": partial(orders_in, sliding),
    "gold.revenue_so_far": partial(orders_in, cumulative),
    "gold.revenue_by_session": sessions,
    "gold.user_count_by_account": user_counts,
    "gold.user_favorite_color_and_cheese": favorites,
}


def test_only_rows_that_can_be_in_touched_windows_are_read(spark: SparkSession) -> None:
    times = {1: at(70), 2: at(61), 3: at(59), 4: at(121), 5: None}
    orders = spark.createDataFrame([(id, 1.0, time, None) for id, time in times.items()], ORDERS.ddl)
    statement, sources = parse(TABLES["gold.revenue_by_hour"]), {ORDERS.name: orders}
    groups = touched(spark, statement, sources, {ORDERS.name: orders.where("line_item_id = 1")})
    count, narrowed = narrow(statement, sources, groups)
    ids = [row.line_item_id for row in narrowed[ORDERS.name].collect()]
    assert (count, ids) == (1, [1, 2, 5])


def changed(source: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Change]:
    """A change of one of five keys. None deletes the key."""
    return st.tuples(st.just(source), st.integers(1, 5), st.none() | value)


ORDER = st.tuples(st.sampled_from(["pies", "tarts", None]), st.integers(1_300, 1_500), st.integers(1, 999))
CHANGES = st.one_of(
    *[changed("orders", ORDER)] * 3,
    changed("users", st.integers(1, 2)),
    changed("colors", st.sampled_from(["red", "blue"])),
    changed("cheeses", st.sampled_from(["brie", "feta"])),
)
MOVED_LATE_AND_DELETED: list[list[Change]] = [
    [
        ("orders", 1, ("pies", 1_400, 100)),
        ("orders", 2, ("pies", 1_400, 200)),
        ("orders", 3, ("tarts", 1_410, 300)),
        ("users", 1, 1),
        ("users", 2, 1),
        ("users", 3, 2),
        ("colors", 1, "red"),
        ("colors", 2, "red"),
    ],
    [
        ("orders", 1, ("tarts", 1_400, 100)),  # moves
        ("orders", 4, ("pies", 1_300, 400)),  # comes late
        ("orders", 3, None),
        ("users", 1, 2),
        ("users", 2, None),
        ("colors", 1, "blue"),
        ("colors", 2, None),
        ("cheeses", 3, "feta"),
    ],
]


@pytest.mark.long
@examples(
    max_examples=1,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(drawn=st.lists(st.lists(CHANGES, min_size=8, max_size=15, unique=True), min_size=2, max_size=2))
def test_a_refreshed_table_is_the_oracles_after_each_round(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory, drawn: list[list[Change]]
) -> None:
    """Rows move between groups, come late, and are deleted. In each round, a refresh crashes after its merge."""
    project = own_home(lake.settings, tmp_path_factory.mktemp("refresh"))
    create_sources(Lake(lake.spark, project))
    state: dict[str, dict[int, Any]] = {source: {} for source in ("orders", *CHANGELOGS)}
    seen = []
    for number, changes in enumerate([*MOVED_LATE_AND_DELETED, *drawn]):
        always = ("orders", 9, ("pies", 1_350, number + 1))  # so that there is something to merge
        for change in [changes[:3], [*changes[3:], always]]:  # several commits
            apply(project, state, change)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(refreshing, "_merge", fail_after(refreshing._merge))
            with pytest.raises(RuntimeError):
                refresh(Lake(lake.spark, project), TABLES["gold.revenue_by_hour"])
        [kind] = {refresh(Lake(lake.spark, project), table).kind for table in TABLES.values()}
        seen.append(kind)
        assert {name: held(project, name) for name in TABLES} == {
            name: in_order(oracle(state)) for name, oracle in ORACLE.items()
        }
    assert seen == ["full", *["incremental"] * 3]
    assert lags(project) == dict.fromkeys(TABLES, 0)
    apply(project, state, [("colors", 9, "red")])
    assert lags(project) == dict.fromkeys(TABLES, 0) | {"gold.user_favorite_color_and_cheese": 1}
    # This compares all columns. The oracle has only some of them.
    again = refresh(Lake(lake.spark, project), TABLES["gold.user_favorite_color_and_cheese"], full=True)
    assert (again.inserted, again.updated, again.deleted) == (0, 0, 0)


def lags(project: Settings) -> dict[str, int | None]:
    return {status.name: status.lag for status in table_statuses(project) if status.name in TABLES}


def create_sources(lake: Lake) -> None:
    for table in (ORDERS, *(entity.table for entity in CHANGELOGS.values())):
        lake.create(table)


def apply(project: Settings, state: dict[str, dict[int, Any]], changes: list[Change]) -> None:
    """Apply the last change of each key to state and tables. Orders are deleted, other keys marked as deleted."""
    for source in state:
        rows = {key: row(source, key, value) for name, key, value in changes if name == source}
        for name, key, value in changes:
            if name == source:
                state[source].pop(key, None)
                state[source] |= {} if value is None else {key: value}
        if rows:
            merge(project, source, list(rows.values()))


def row(source: str, key: int, value: Any) -> dict[str, Any]:
    match source, value:
        case "orders", None:
            return {"line_item_id": key}
        case "orders", (category, minute, cents):
            item = {"category": category}
            return {"line_item_id": key, "price": cents / 100, "created_at": at(minute), "item": item}
        case _, None:
            return {"user_id": key, "deleted_at": at(0)}
        case "users", account:
            return {"user_id": key, "account_id": account, "name": f"user of {account}"}
    return {"user_id": key, source.removesuffix("s"): value}


def merge(project: Settings, source: str, rows: Rows) -> None:
    name, key = ("gold.enriched_orders", "line_item_id")
    if source != "orders":
        name, key = CHANGELOGS[source].table.name, "user_id"
    table = DeltaTable(project.table_path(name))
    schema = pa.schema(table.schema().to_arrow())
    is_deleted = "s.created_at IS NULL" if source == "orders" else "false"
    (
        table.merge(pa.Table.from_pylist(rows, schema=schema), f"t.{key} = s.{key}", source_alias="s", target_alias="t")
        .when_matched_delete(is_deleted)
        .when_matched_update_all()
        .when_not_matched_insert_all(f"NOT ({is_deleted})")
        .execute()
    )


def held(project: Settings, name: str) -> Rows:
    """The rows of a table, with only the columns that the oracle has."""
    columns = {
        "gold.user_count_by_account": ("account_id", "users"),
        "gold.user_favorite_color_and_cheese": ("user_id", "name", "color", "cheese"),
    }.get(name, ("category", "window_start", "window_end", "orders", "revenue"))
    return in_order([{column: row[column] for column in columns} for row in read(project, name)])


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=str)


LEFT_AND_RIGHT = [
    Table(name=f"silver.{side}", columns="id BIGINT, k STRING, v BIGINT", properties=WITH_FEED)
    for side in ("lefts", "rights")
]
SHAPES = {
    "both_keys": """SELECT r.k AS k, l.id AS id, l.v + r.v AS v
        FROM silver.lefts AS l JOIN silver.rights AS r ON l.k = r.k""",
    "either_key": """SELECT coalesce(l.k, r.k) AS k, coalesce(r.id, 0) AS id, count(l.v) AS v
        FROM silver.lefts AS l FULL JOIN silver.rights AS r ON l.k = r.k
        GROUP BY ALL""",
    "to_the_right": """SELECT r.k AS k, r.id AS id, max(l.v) AS v
        FROM silver.lefts AS l RIGHT JOIN silver.rights AS r ON l.k = r.k
        GROUP BY r.k, r.id""",
    "of_two": """SELECT k, id, v FROM silver.lefts WHERE v > 1
        UNION ALL SELECT upper(k) AS k, id, 0 FROM silver.rights""",
    "distinct_rows": """SELECT DISTINCT k, v > 1 AS id, 0 AS v FROM silver.lefts""",
    "top": """SELECT k, rank AS id, v
        FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS rank FROM silver.lefts)
        WHERE rank <= 1""",
    "named": """WITH sums AS (SELECT k, id % 2 AS id, sum(v) AS v FROM silver.lefts GROUP BY k, id % 2)
        SELECT s.k AS k, 0 AS id, max(s.v) AS v FROM sums AS s GROUP BY s.k
        UNION SELECT k, CAST(v AS INT), id FROM (SELECT * FROM silver.rights WHERE k = 'b')""",
}
"""By name: SELECTs with the keys k and id."""


@pytest.mark.long
def test_each_shape_is_refreshed_by_keys(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    for table in LEFT_AND_RIGHT:
        own.create(table)

    def add(table: str, *rows: tuple[int, str, int]) -> None:
        own.table(table).append(own.spark.createDataFrame(list(rows), LEFT_AND_RIGHT[0].ddl))

    def remove(table: str, where: str) -> None:
        DeltaTable(own.table(table).path).delete(where)

    def refreshed(name: str) -> tuple[str, list[tuple[Any, ...]]]:
        (tmp_path / f"{name}.sql").write_text(f"-- keys: k, id\n-- refresh: incremental\n{SHAPES[name]}")
        kind = refresh(own, read_declaration(tmp_path / f"{name}.sql")).kind
        return kind, sorted(tuple(row.values()) for row in read(own.settings, f"gold.{name}"))

    add("silver.lefts", (1, "a", 1), (2, "a", 2), (3, "c", 5))
    add("silver.rights", (11, "a", 10), (12, "b", 20))
    assert {name: refreshed(name) for name in SHAPES} == {
        "both_keys": ("full", [("a", 1, 11), ("a", 2, 12)]),
        "either_key": ("full", [("a", 11, 2), ("b", 12, 0), ("c", 0, 1)]),
        "to_the_right": ("full", [("a", 11, 2), ("b", 12, None)]),
        "of_two": ("full", [("A", 11, 0), ("B", 12, 0), ("a", 2, 2), ("c", 3, 5)]),
        "distinct_rows": ("full", [("a", False, 0), ("a", True, 0), ("c", True, 0)]),
        "top": ("full", [("a", 1, 2), ("c", 1, 5)]),
        "named": ("full", [("a", 0, 2), ("b", 20, 12), ("c", 0, 5)]),
    }
    remove("silver.lefts", "id = 2")
    add("silver.lefts", (4, "b", 3))
    remove("silver.rights", "id = 11")
    add("silver.rights", (13, "c", 0))
    assert {name: refreshed(name) for name in SHAPES} == {
        "both_keys": ("incremental", [("b", 4, 23), ("c", 3, 5)]),
        "either_key": ("incremental", [("a", 0, 1), ("b", 12, 1), ("c", 13, 1)]),
        "to_the_right": ("incremental", [("b", 12, 3), ("c", 13, 5)]),
        "of_two": ("incremental", [("B", 12, 0), ("C", 13, 0), ("b", 4, 3), ("c", 3, 5)]),
        "distinct_rows": ("incremental", [("a", False, 0), ("b", True, 0), ("c", True, 0)]),
        "top": ("incremental", [("a", 1, 1), ("b", 1, 3), ("c", 1, 5)]),
        "named": ("incremental", [("a", 0, 1), ("b", 0, 3), ("b", 20, 12), ("c", 0, 5)]),
    }


def test_a_line_says_what_full_costs(lake: Lake, tmp_path: Path) -> None:
    own = Lake(lake.spark, own_home(lake.settings, tmp_path))
    own.create(ORDERS)
    apply(own.settings, {"orders": {}}, [("orders", 1, ("pies", 1, 100))])
    table = declared(tmp_path, ("GROUP BY", "GROUP BY item.category LIMIT 5 --"))
    with pytest.raises(
        ConfigurationError, match=r"x.sql:3: LIMIT can't .*; it reads all of gold.enriched_orders \(rows: 1, "
    ):
        refresh(own, table)


SELECT = """-- keys: category
-- refresh: incremental
SELECT item.category AS category, count(*) AS orders
FROM gold.enriched_orders
WHERE price > 0
GROUP BY item.category
"""


def declared(folder: Path, *changes: tuple[str, str]) -> SqlTable:
    text = SELECT
    for wrong, instead in changes:
        assert wrong in text
        text = text.replace(wrong, instead)
    (folder / "x.sql").write_text(text)
    return read_declaration(folder / "x.sql")


CATEGORY = "item.category"
JOINED = [
    ("FROM gold.enriched_orders", "FROM gold.enriched_orders AS o LEFT JOIN silver.users AS u ON o.user_id = u.id"),
]
COUNT = "count(*) AS orders"
KEYS = "-- keys: category"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            [(KEYS, f"-- check is_few: order < 9\n{KEYS}")],
            r"x.sql:1: check is_few: order < 9: .*`order` cannot be resolv",
        ),
        ([(KEYS, f"-- check is_few: orders\n{KEYS}")], "x.sql:1: check is_few: orders is bigint: must be a condition"),
        ([("price > 0", "prize > 0")], r"x.sql:5: .*`prize` cannot be resolved"),
        ([("WHERE", "WERE")], r"x.sql:5: "),
        ([("GROUP BY item.category", "GROUP BY (")], r"x.sql:6: not SQL"),
        ([("keys: category", "keys: item")], "x.sql:1: keys: item is not a column of the SELECT"),
        ([("gold.enriched_orders", "gold.nothing")], "x.sql:4: gold.nothing: no such table"),
        ([("gold.enriched_orders", "bronze.nothing")], "x.sql:4: bronze.nothing: no such table"),
        (
            [
                ("keys: category", "keys: line_item_id"),
                ("item.category AS category, count(*) AS orders", "*"),
                ("GROUP BY item.category", ""),
            ],
            r"x.sql:3: SELECT \*, which does not name its columns, can't be refreshed by keys",
        ),
        ([(COUNT, "map('a', 1) AS orders")], "x.sql:3: orders is a map"),
        ([(COUNT, "CAST('many' AS INT) AS orders")], r"x.sql:3: \[CAST_INVALID_INPUT\] The value 'many'"),
        (
            [
                ("-- keys", "-- publish: topic x, postgres x\n-- keys"),
                (COUNT, "max(created_at) - min(created_at) AS orders"),
            ],
            "x.sql:4: orders is interval day to second, which can't be published to Postgres",
        ),
        ([(COUNT, "sum(price) AS orders")], "x.sql:3: a sum of doubles"),
        ([(COUNT, "first(price) AS orders")], r"x.sql:3: first\(\), which is not one of count, "),
        ([(COUNT, "std(line_item_id) AS orders")], r"x.sql:3: std\(\), which is not one of count, "),
        ([(COUNT, "sum(DISTINCT price) AS orders")], "x.sql:3: a sum of doubles"),
        ([(COUNT, "count(*) AS _orders")], "x.sql:3: _orders: must be named with AS"),
        ([(COUNT, "collect_list(map('a', 1)) AS orders")], "x.sql:3: orders is a map"),
        ([("BY item.category", "BY window(created_at, '1 hour')")], "x.sql:6: not SQL: put another key before window"),
        ([(COUNT, "uuid() AS orders")], "another value that differs each time"),
        ([(COUNT, "now() AS orders")], "the current time, or"),
        ([("GROUP BY item.category", "GROUP BY ROLLUP(item.category)")], "ROLLUP"),
        ([("GROUP BY", "GROUP BY item.category LIMIT 5 --")], "LIMIT"),
        ([*JOINED, ("LEFT JOIN", "LEFT SEMI JOIN")], "x.sql:4: a join other than INNER, LEFT, RIGHT and FULL"),
        ([*JOINED, ("silver.users AS u", "(SELECT id FROM silver.users) AS u")], "x.sql:4: a join of a subquery can't"),
        (
            [*JOINED, ("WHERE price", "RIGHT JOIN silver.items AS i ON i.id = o.item_id WHERE o.price")],
            "x.sql:5: a RIGHT join of more than two tables",
        ),
        (
            [
                *JOINED,
                ("LEFT JOIN silver.users AS u ON o.user_id = u.id", "JOIN silver.users AS user ON o.user_id = 1"),
            ],
            "x.sql:4: a join of user, which is also the name of a column, can't",
        ),
        (
            [*JOINED, (CATEGORY, "item_name")],
            r"x.sql:3: the key category, with columns of an unknown table \(write o.x",
        ),
        ([("price > 0", "user_id IN (SELECT id FROM silver.users)")], "x.sql:5: a subquery outside of FROM"),
        (
            [(COUNT, "rank() OVER (ORDER BY price) AS orders"), ("GROUP BY item.category", "")],
            "x.sql:3: the key category, that PARTITION BY does not have, can't",
        ),
        ([(COUNT, "ntile(3) OVER (ORDER BY price) AS n"), ("GROUP BY item.category", "")], r"x.sql:3: ntile\(\), whi"),
        (
            [("GROUP BY item.category", "GROUP BY 1 UNION SELECT upper(first_name), 1 FROM silver.users")],
            r"x.sql:6: \*, or a function without a name, in a UNION \(use AS\) can't",
        ),
        ([(CATEGORY, "to_char(created_at, 'yyyy-MM')")], "x.sql:3: from `to_char` on, sqlglot reads this differently"),
        ([(CATEGORY, "date_trunc(item_name, created_at)")], "x.sql:3: from `item_name` on, sqlglot reads this"),
        ([(CATEGORY, "log2(line_item_id)")], "x.sql:3: from `log2` on, sqlglot reads this"),
        (
            [
                *JOINED,
                ("LEFT JOIN silver.users AS u ON o.user_id", "JOIN silver.users AS u ON bigint(log2(o.user_id))"),
                (CATEGORY, "o.item_name"),
            ],
            "x.sql:4: from `log2` on, sqlglot reads this",
        ),
    ],
)
def test_what_can_not_be_done_is_refused_with_file_and_line(
    lake: Lake, tmp_path: Path, changes: list[tuple[str, str]], error: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:  # some when the file is read, others when it is resolved
        refuse(check_declarations(lake, [declared(tmp_path, *changes)], declared_columns(SHOP))[1])
    assert re.search(error, str(refused.value))


def test_in_full_any_function_can_be_used(lake: Lake, tmp_path: Path) -> None:
    table = declared(tmp_path, (CATEGORY, "to_char(created_at, 'yyyy-MM')"), ("incremental", "full"))
    assert check_declarations(lake, [table], declared_columns(SHOP))[1] == []


def test_what_sqlglot_writes_in_another_way_is_the_same(lake: Lake, tmp_path: Path) -> None:
    condition = """
        paid_at IS NOT NULL AND created_at >= DATE '2026-01-01' AND paid_at < TIMESTAMP '2027-01-01 00:00:00'
        AND line_item_id > 1L AND paid_at - created_at < INTERVAL 1 HOUR 30 MINUTES
    """
    table = declared(tmp_path, ("price > 0", condition))
    assert check_declarations(lake, [table], declared_columns(SHOP))[1] == []


@pytest.mark.parametrize(
    "source", ["bronze.users", "quarantine.malformed", "quarantine.waiting_orders", "quarantine.duplicate_orders"]
)
def test_what_has_no_change_feed_can_be_read_in_full(lake: Lake, tmp_path: Path, source: str) -> None:
    """Also while no table is there yet."""
    read = [("gold.enriched_orders", source), (CATEGORY, "year(publish_time)"), ("WHERE price > 0\n", "")]
    if "orders" in source:
        read[1] = (CATEGORY, "year(created_at)")
    in_full = declared(tmp_path, *read, ("incremental", "full"))
    assert check_declarations(lake, [in_full], declared_columns(SHOP))[1] == []
    _, [line] = check_declarations(lake, [declared(tmp_path, *read)], declared_columns(SHOP))
    assert f"{source} has no change data feed: declare `refresh: full`" in line


def test_all_declarations_can_be_done(lake: Lake) -> None:
    columns = declared_columns(SHOP) | {entity.table.name: entity.table.ddl for entity in CHANGELOGS.values()}
    known, wrong = check_declarations(lake, list(TABLES.values()), columns)
    assert (list(known), wrong) == (list(TABLES), [])


def test_keys_are_unique_and_not_null_or_the_table_stays(lake: Lake, tmp_path: Path) -> None:
    project = own_home(lake.settings, tmp_path)
    create_sources(Lake(lake.spark, project))
    state: dict[str, dict[int, Any]] = {"orders": {}}
    apply(project, state, [("orders", 1, ("pies", 1, 100)), ("orders", 2, ("tarts", 2, 100))])
    first = refresh(Lake(lake.spark, project), declared(tmp_path))
    assert (first.kind, first.reason, first.inserted) == ("full", "first refresh", 2)
    assert refresh(Lake(lake.spark, project), declared(tmp_path)).reason == "nothing new"
    apply(project, state, [("orders", 2, (None, 2, 100))])
    with pytest.raises(LakehouseError, match="NULL in the keys category: use"):
        refresh(Lake(lake.spark, project), declared(tmp_path))
    apply(project, state, [("orders", 2, ("pies", 2, 100))])
    finer = declared(tmp_path, ("GROUP BY item.category", "GROUP BY item.category, line_item_id"))
    with pytest.raises(LakehouseError, match="the keys category are not unique: several rows have category pies"):
        refresh(Lake(lake.spark, project), finer)
    assert in_order(read(project, "gold.x")) == [{"category": c, "orders": 1} for c in ("pies", "tarts")]
    done = refresh(Lake(lake.spark, project), declared(tmp_path))
    assert (done.kind, done.updated, done.deleted) == ("incremental", 1, 1)
    changed = refresh(Lake(lake.spark, project), declared(tmp_path, ("price > 0", "price > 5")))
    assert (changed.kind, changed.reason, changed.deleted) == ("full", "the declaration has changed", 1)
    by_region = declared(tmp_path, ("keys: category", "keys: category, region"), (COUNT, f"{COUNT}, 'north' AS region"))
    with pytest.raises(LakehouseError, match=r"keys: region is not in gold\.x: keys have changed: declare it under"):
        refresh(Lake(lake.spark, project), by_region)


def test_a_column_is_not_lost_by_a_refresh_before_that_is_approved(lake: Lake, tmp_path: Path) -> None:
    lake = Lake(lake.spark, own_home(lake.settings, tmp_path))
    create_sources(lake)
    apply(lake.settings, {"orders": {}}, [("orders", 1, ("pies", 1, 100))])
    refresh(lake, declared(tmp_path))
    renamed = declared(tmp_path, (COUNT, "count(*) AS lines"))
    with pytest.raises(ConfigurationError) as error:
        refresh(lake, renamed)
    assert str(error.value) == (
        "gold.x: orders is probably renamed to lines: new rows would have NULL there: declare it as before or accept "
        "that by `lakehouse plan --approve`"
    )
    assert read(lake.settings, "gold.x") == [{"category": "pies", "orders": 1}]
    columns = StructType().add("category", "string").add("lines", "long")
    assert approve_losses(lake, gold_table(renamed, columns)) == ["orders"]
    refresh(lake, renamed)
    assert read(lake.settings, "gold.x") == [{"category": "pies", "orders": None, "lines": 1}]


def test_a_price_that_keeps_its_check_can_be_summed(spark: SparkSession) -> None:
    given = [0.0, 999_999_999_999_999.0, 1e15, 1e17, float("inf"), float("nan"), -1.0]
    prices = spark.createDataFrame([(price,) for price in given], "price DOUBLE")
    kept = prices.where(ORDERS_ENRICHED.checks["price_is_an_amount"].sql)
    [row] = kept.selectExpr("count(*)", "sum(CAST(price AS DECIMAL(18, 2)))").collect()
    assert tuple(row) == (2, Decimal("999999999999999.00"))
