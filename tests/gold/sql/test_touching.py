"""Every key whose rows a change changes is among the touched keys: generated queries and changes, run in DuckDB."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from pyspark.sql import SparkSession
from sqlglot import exp

from pulsar_lakehouse.gold.sql import touching
from pulsar_lakehouse.gold.sql.parsing import DIALECT
from pulsar_lakehouse.gold.sql.touching import CHANGED, NotByKeyError, as_views, inlined, view, why_not

CONNECTION = duckdb.connect(config={"threads": 1, "default_null_order": "nulls_first"})  # as Spark
SOURCES = ("silver.x", "silver.y", "silver.z")
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("g", pa.int64()),
        ("v", pa.int64()),
        ("item", pa.struct({"c": pa.int64()})),
    ]
)
Rows = list[dict[str, Any]]
Tables = dict[str, Rows]
Values = Mapping[str, Sequence[tuple[int, int, int]]]


@dataclass(frozen=True)
class Queries:
    """Random SELECTs with the columns a, b, n and m."""

    random: Random

    def any_of(self, *texts: str) -> str:
        return self.random.choice(texts)

    def query(self, depth: int = 2) -> str:
        """WITH is only at the top."""
        if depth == 2 and self.random.random() < 0.3:
            more, name = self.random.choice([("", "q"), (", p AS (SELECT * FROM q WHERE n > 1)", "p")])
            return f"WITH q AS ({self.query(1)}){more} {self.over(f'{name} AS o', 'o.')}"
        kinds = [self.of_one, self.of_one, self.of_two, self.of_two, self.of_three]
        if depth:
            kinds += [lambda: self.union(depth - 1), lambda: self.over(f"({self.query(depth - 1)}) AS o", "o.")] * 3
        return self.random.choice(kinds)()

    def union(self, depth: int) -> str:
        kind = self.any_of("UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT")
        return f"SELECT a, b, n, m FROM ({self.query(depth)}) {kind} SELECT a, b, n, m AS l FROM ({self.query(depth)})"

    def over(self, source: str, of: str) -> str:
        where = self.any_of("", "WHERE n <= 2", f"WHERE {of}a > 0")
        match self.random.randrange(6):
            case 0:
                return f"SELECT {of}a, b, n, m FROM {source} {where}"
            case 1:
                return f"SELECT b AS a, coalesce(a, 0) AS b, n, m FROM {source} {where}"
            case 2:
                return f"SELECT DISTINCT a, b, a AS n, b AS m FROM {source} {where}"
            case 3:
                return f"SELECT a, b, count(*) AS n, max({of}n) AS m FROM {source} {where} GROUP BY a, b"
            case 4:
                ranked = f"SELECT *, {self.window(f'{of}a', 'b', 'b, n, m')} AS r FROM {source} {where}"
                return f"SELECT a, b, n, r AS m FROM ({ranked}) WHERE r <= 2"
        by = self.any_of("a", "b")
        return f"SELECT {by} AS a, n AS b, {self.window(by, by, 'a, b, n, m')} AS n, m FROM {source} {where}"

    def window(self, first: str, second: str, order: str) -> str:
        function = self.any_of("row_number()", "rank()", "count(*)", "lag(n)" if "n" in order else "dense_rank()")
        return f"{function} OVER (PARTITION BY {self.any_of(first, f'{first}, {second}')} ORDER BY {order})"

    def of_one(self) -> str:
        source, a = self.any_of(*SOURCES), self.any_of("k", "coalesce(k, 0)", "item.c", "t.item.c", "k + g")
        where = self.any_of("", "WHERE v > 1", "WHERE g IS NOT NULL")
        match self.random.randrange(5):
            case 0:
                return f"SELECT {a} AS a, g AS b, v AS n, id AS m FROM {source} AS t {where}"
            case 1:
                return f"SELECT DISTINCT {a} AS a, g AS b, v AS n, 1 AS m FROM {source} AS t {where}"
            case 2:
                window = self.window("k", "g", "v, id").replace("lag(n)", "lag(v)")
                return f"SELECT k AS a, g AS b, {window} AS n, id AS m FROM {source} AS t {where}"
        having = self.any_of("", "HAVING count(*) > 1")
        return (
            f"SELECT {a} AS a, g AS b, count(*) AS n, sum(v) AS m FROM {source} AS t {where} GROUP BY {a}, g {having}"
        )

    def of_two(self) -> str:
        side, on = self.any_of("", "LEFT", "RIGHT", "FULL OUTER"), self.any_of("l.k = r.k", "l.k = r.g AND l.v <= r.v")
        a = self.any_of("l.k", "r.k", "coalesce(l.k, r.k)", "coalesce(l.item.c, -1)")
        b = self.any_of("l.g", "r.g", "coalesce(r.g, -1)", "coalesce(l.g, r.v, 0)", "l.k + r.k")
        tables = f"FROM {self.any_of(*SOURCES)} AS l {side} JOIN {self.any_of(*SOURCES)} AS r ON {on}"
        return self.grouped(a, b, "coalesce(l.v, 0) + coalesce(r.v, 0)", f"{tables} {self.any_of('', 'WHERE l.v > 1')}")

    def of_three(self) -> str:
        joins = [
            f"{self.any_of('', 'LEFT')} JOIN {self.any_of(*SOURCES)} AS {name} ON {self.any_of(*conditions)}"
            for name, conditions in {
                "r": ("l.k = r.k", "l.v = r.v"),
                "s": ("s.k = l.g", "s.k = coalesce(r.v, 0)", "s.k = r.g AND s.v <= l.v", "s.v = r.v"),
            }.items()
        ]
        a, b = self.any_of("l.k", "l.k", "r.k", "s.g", "l.k + s.k"), self.any_of("l.g", "r.g", "s.v", "1")
        return self.grouped(a, b, "l.v", f"FROM {self.any_of(*SOURCES)} AS l {' '.join(joins)}")

    def grouped(self, a: str, b: str, value: str, rest: str) -> str:
        if self.random.random() < 0.5:
            return f"SELECT {a} AS a, {b} AS b, {value} AS n, 1 AS m {rest}"
        return f"SELECT {a} AS a, {b} AS b, count(*) AS n, sum({value}) AS m {rest} GROUP BY {a}, {b}"


@dataclass(frozen=True)
class Case:
    tree: exp.Query
    keys: Sequence[str]
    """Those of a and b that rows are recomputed by."""
    before: Tables
    after: Tables
    passing: Tables
    """Rows that came and went again between before and after."""

    def changed(self, name: str) -> Rows:
        before, after = self.before[name], self.after[name]
        removed, added = ([row for row in one if row not in other] for one, other in ((before, after), (after, before)))
        return [*removed, *added, *self.passing[name]]


def cases(seed: int, number: int = 100) -> Iterator[Case]:
    random = Random(seed)
    while number:
        tree = parsed(Queries(random).query())
        try:
            keys = [key for key, why in why_not(tree).items() if key in ("a", "b") and not why]
        except NotByKeyError:
            keys = []
        if keys:
            before = {name: [row(random, id) for id in range(random.randint(0, 5))] for name in SOURCES}
            after = {name: list(changed(random, rows)) for name, rows in before.items()}
            passing = {name: [row(random, 9)] * (random.random() < 0.2) for name in SOURCES}
            yield Case(tree, keys, before, after, passing)
            number -= 1


def parsed(sql: str) -> exp.Query:
    tree = sqlglot.parse_one(sql, read=DIALECT)
    assert isinstance(tree, exp.Query)
    return inlined(tree)


def row(random: Random, id: int) -> dict[str, Any]:
    k, g, v, c = (random.choice([None, 0, 1, 2, 3]) for _ in range(4))
    return {"id": id, "k": k, "g": g, "v": v, "item": {"c": c}}


def changed(random: Random, rows: Rows) -> Iterator[dict[str, Any]]:
    """Most sources stay as they are, as each change must be enough to find its keys."""
    if random.random() < 0.5:
        yield from rows
        return
    for each in rows:
        if random.random() < 0.7:
            yield each if random.random() < 0.7 else row(random, each["id"])
    if random.random() < 0.5:
        yield row(random, 7)


def missed(case: Case) -> set[tuple[Any, ...]]:
    """The keys whose rows differ, but which no query finds."""
    both = [Counter(run(as_views(case.tree).sql(DIALECT), rows)) for rows in (case.before, case.after)]
    names = [each.alias_or_name for each in case.tree.selects]
    different = (both[0] - both[1]) + (both[1] - both[0])
    wanted = {tuple(row[names.index(key)] for key in case.keys) for row in different}
    either = {name: [*rows, *case.changed(name)] for name, rows in case.after.items()}
    found = {
        key
        for name, sql in touching.touching(case.tree, case.keys)
        for key in run(sql, {**either, CHANGED: case.changed(name)})
    }
    return wanted - found


def run(sql: str, tables: Tables) -> list[tuple[Any, ...]]:
    for name, rows in tables.items():
        CONNECTION.register(view(name), pa.Table.from_pylist(rows, schema=COLUMNS))
    return CONNECTION.execute(sql.replace("`", '"')).fetchall()


@pytest.mark.parametrize("seed", range(5))
def test_every_key_whose_rows_differ_is_touched(seed: int) -> None:
    assert [(case.tree.sql(DIALECT), case.keys, keys) for case in cases(seed) if (keys := missed(case))] == []


def literal(sql: str, before: Values, after: Values) -> Case:
    """A case with rows of k, g and v; what is not given has no rows."""
    tree = parsed(sql)
    keys = [key for key, why in why_not(tree).items() if not why]
    nothing: Tables = {name: [] for name in SOURCES}
    old, new = (nothing | {f"silver.{name}": named(rows) for name, rows in each.items()} for each in (before, after))
    return Case(tree, keys, old, new, nothing)


def named(rows: Sequence[tuple[int, int, int]]) -> Rows:
    return [{"id": k, "k": k, "g": g, "v": v, "item": None} for k, g, v in rows]


def only_added(case: Case, name: str) -> Rows:
    return [row for row in case.after[name] if row not in case.before[name]]


@pytest.mark.parametrize(
    ("where", "part", "without", "sql", "before", "after", "key"),
    [
        pytest.param(
            *(Case, "changed", only_added, "SELECT k AS a FROM silver.x"),
            *({"x": [(1, 1, 1)]}, {}, (1,)),
            id="rows from before",
        ),
        pytest.param(
            *(touching, "_nullable", lambda _: []),
            "SELECT coalesce(r.g, 0) AS a FROM silver.x AS l LEFT JOIN silver.y AS r ON l.k = r.k",
            *({"x": [(1, 1, 1)]}, {"x": [(1, 1, 1)], "y": [(1, 5, 1)]}, (0,)),
            id="the key without a match",
        ),
        pytest.param(
            *(touching, "_join_changes", lambda *_: None),
            """SELECT l.k AS a FROM silver.x AS l LEFT JOIN silver.y AS r ON l.k = r.k
               JOIN silver.z AS s ON s.k = coalesce(r.v, 0)""",
            {"x": [(1, 1, 1)], "z": [(0, 1, 1)]},
            {"x": [(1, 1, 1)], "z": [(0, 1, 1)], "y": [(1, 1, 5)]},
            (1,),
            id="rows of a later inner join that has no match any more",
        ),
        pytest.param(
            *(touching, "_shared_partition", lambda _: None),
            "SELECT k % 2 AS a, g AS b, rank() OVER (PARTITION BY k % 2 ORDER BY v) AS n FROM silver.x",
            *({"x": [(1, 1, 7)]}, {"x": [(1, 1, 7), (3, 2, 6)]}, (1, 1)),
            id="only keys of PARTITION BY",
        ),
    ],
)
def test_each_part_is_needed(
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    part: str,
    without: Callable[..., Any],
    sql: str,
    before: Values,
    after: Values,
    key: tuple[int, ...],
) -> None:
    assert missed(literal(sql, before, after)) == set()
    monkeypatch.setattr(where, part, without)
    assert missed(literal(sql, before, after)) == {key}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT g AS a FROM (SELECT r.g, l.v FROM silver.x AS l LEFT JOIN silver.y AS r ON l.k = r.k)",
        "SELECT coalesce(l.k, r.k) AS a, count(*) AS n FROM silver.x AS l FULL JOIN silver.y AS r USING (k) GROUP BY 1",
        "SELECT l.g AS a, r.g AS b FROM silver.x AS l JOIN silver.y AS r USING (k)",
        "SELECT a, n FROM (SELECT k AS a, count(*) AS n FROM silver.x GROUP BY k) AS o WHERE o.n > 0",
    ],
)
def test_names_of_columns_stay(sql: str) -> None:
    before: Values = {"x": [(1, 1, 1), (2, 2, 2)], "y": [(2, 5, 2)]}
    after: Values = {"x": [(1, 1, 1), (3, 3, 3)], "y": [(1, 6, 1)]}
    assert missed(literal(sql, before, after)) == set()


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT 1 AS a UNION SELECT k FROM silver.x", "something other than a SELECT from a table or a subquery"),
        ("(SELECT k AS a FROM silver.x LIMIT 1) UNION SELECT k FROM silver.x", "LIMIT"),
        ("SELECT k AS a FROM silver.x UNION ALL BY NAME SELECT k AS a FROM silver.x", "BY NAME of a UNION"),
        ("WITH q AS (SELECT 1 FROM silver.x) SELECT k AS a FROM silver.y", "q, which WITH defines but nothing reads,"),
        ("WITH q (a) AS (SELECT k FROM silver.x) SELECT a FROM q", "q with more than an alias"),
        ("SELECT a FROM silver.x AS t (a, b)", "t with other names for its columns"),
        ("SELECT k AS a, rank() OVER w AS n FROM silver.x WINDOW w AS (PARTITION BY k ORDER BY g)", "WINDOWS"),
        ("SELECT a FROM (SELECT count(*) FROM silver.x)", "a column without a name (use AS)"),
        (
            "SELECT a FROM (SELECT max(k) AS c FROM silver.x) LATERAL VIEW explode(array(c)) t AS a",
            "LATERAL VIEW with a",
        ),
        ("SELECT l.k AS a FROM silver.x AS l CROSS JOIN silver.y AS r", "a join without ON"),
        ("SELECT l.k AS a FROM silver.x AS l LEFT ANTI JOIN silver.y AS r ON l.k = r.k", "a join other than INNER, L"),
    ],
)
def test_what_has_no_keys_is_told(sql: str, what: str) -> None:
    with pytest.raises(NotByKeyError, match=f"^{re.escape(what)}"):
        why_not(parsed(sql))


@pytest.mark.long
def test_spark_runs_the_queries_as_duckdb_does(spark: SparkSession) -> None:
    columns = "id BIGINT, k BIGINT, g BIGINT, v BIGINT, item STRUCT<c: BIGINT>"

    def by_spark(sql: str, tables: Tables) -> Counter[tuple[Any, ...]]:
        for name, rows in tables.items():
            spark.createDataFrame(rows, columns).createOrReplaceTempView(view(name))
        return Counter(tuple(row) for row in spark.sql(sql).collect())

    for case in cases(seed=5, number=30):
        sql = as_views(case.tree).sql(DIALECT)
        assert by_spark(sql, case.after) == Counter(run(sql, case.after)), sql
        for name, sql in touching.touching(case.tree, case.keys):
            tables = {**case.before, CHANGED: case.changed(name)}
            assert by_spark(sql, tables) == Counter(run(sql, tables)), sql
