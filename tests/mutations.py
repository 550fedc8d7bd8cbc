"""Makes many SQL queries from a few: other tables and columns, values, functions, and nestings."""

import random
from collections.abc import Iterator, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

QUERIES = (
    "SELECT id, email FROM silver.users WHERE id = 1",
    "SELECT u.id, o.price FROM silver.users AS u JOIN gold.orders AS o ON u.id = o.user_id WHERE o.price > 1",
    "SELECT count(*), max(u.email) FROM silver.users AS u GROUP BY u.id HAVING count(*) > 0",
    "WITH a AS (SELECT id, city FROM silver.users) SELECT * FROM a WHERE id IN (SELECT user_id FROM gold.orders)",
    "SELECT * FROM silver.users ORDER BY email LIMIT 5",
    "SELECT id FROM silver.users WHERE email LIKE 'CANARY%' OR rank > 5",
    "SELECT id FROM silver.users WHERE rank < 90300",
    "SELECT city FROM silver.users WHERE email < 'CANARY B' AND id > 0",
    "SELECT count(*) FROM bronze.users AS u WHERE properties > 'CANARY B' OR key = 'a'",
    "SELECT id, row_number() OVER (PARTITION BY city ORDER BY email) FROM silver.users",
    "SELECT CASE WHEN email = 'x' THEN id ELSE price END FROM silver.users, gold.orders",
    "SELECT id FROM silver.users UNION ALL SELECT user_id FROM gold.orders",
    "SELECT (SELECT max(payload) FROM bronze.users), EXISTS (SELECT 1 FROM gold.orders) FROM gold.orders",
    "SELECT contact.email, contact.street FROM silver.users WHERE contact.email IS NOT NULL",
    "SELECT DISTINCT key, payload FROM bronze.users WHERE key > 'a'",
)
FUNCTIONS = ("upper({})", "length({})", "md5({})", "CAST({} AS VARCHAR)", "count({})", "min({})", "max({})", "hash({})")
VALUES = ("'CANARY'", "'CANARY B'", "90300", "'%CANARY%'", "''", "NULL", "0", "'a'", "'***'")
SHAPES = (
    "SELECT * FROM ({0}) AS q",
    "WITH q AS ({0}) SELECT count(*) FROM q",
    "SELECT (SELECT count(*) FROM ({0}) AS q)",
    "SELECT * FROM gold.orders AS z WHERE EXISTS ({0})",
    "{0} UNION ALL {0}",
    "{0} EXCEPT {1}",
    "SELECT * FROM ({0}) AS q, ({1}) AS r",
)


def mutated(seed: int, *, tables: Sequence[str], columns: Sequence[str], dialect: str) -> Iterator[str]:
    """Endless queries, the same for a seed. `tables` and `columns` are SQL that is put in place of others."""
    chosen = random.Random(seed)
    while True:
        try:
            yield _mutated(chosen, tables, columns, dialect)
        except SqlglotError:
            continue


def _mutated(chosen: random.Random, tables: Sequence[str], columns: Sequence[str], dialect: str) -> str:
    tree = sqlglot.parse_one(chosen.choice(QUERIES), dialect="duckdb")
    for _ in range(chosen.randint(1, 4)):
        kind = chosen.choice((exp.Table, exp.Table, exp.Column, exp.Literal))
        nodes = [node for node in tree.find_all(kind) if node.parent is not None]
        if not nodes:
            continue
        node = chosen.choice(nodes)
        if isinstance(node, exp.Table):
            new: exp.Expr = exp.maybe_parse(chosen.choice(tables), into=exp.Table, dialect=dialect)
            if node.alias:
                new = exp.alias_(new, node.alias, table=True)
        elif isinstance(node, exp.Literal):
            new = sqlglot.parse_one(chosen.choice(VALUES), dialect="duckdb")
        elif chosen.random() < 0.5:
            new = sqlglot.parse_one(chosen.choice(columns), dialect="duckdb")
        else:
            new = sqlglot.parse_one(chosen.choice(FUNCTIONS).format(node.sql("duckdb")), dialect="duckdb")
        node.replace(new)
    sql = tree.sql(dialect)
    if chosen.random() < 0.4:
        sql = chosen.choice(SHAPES).format(sql, sqlglot.transpile(chosen.choice(QUERIES), "duckdb", dialect)[0])
    return sql
