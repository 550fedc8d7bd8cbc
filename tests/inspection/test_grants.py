"""Nobody learns what is not granted: whatever a query asks, it gets the same answer if other values are hidden."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pulsar_lakehouse.access import Reader
from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.inspection.query import fenced, query_fenced, run_fenced
from pulsar_lakehouse.settings import Settings, load_settings
from tests.mutations import mutated

READER = Reader(
    grants=frozenset(("silver.users", "gold.orders", "bronze")),
    personal={
        "silver.users": ("contact.email", "email", "labels", "rank"),
        "bronze.users": ("payload", "properties"),
        "gold.vault": ("email",),
    },
    declared=frozenset(("gold.orders",)),
)
TABLES = (
    *("silver.users", "bronze.users", "gold.orders") * 8,
    *("silver.users", "bronze.users", "gold.orders", "gold.vault", "quarantine.malformed", "silver.users_history"),
    *("vault", "gold_vault", "main.gold_vault", "silver_users", "temp.main.silver_users", "memory.gold.vault"),
    *("information_schema.tables", "information_schema.columns", "pg_catalog.pg_class", "pg_catalog.pg_views"),
    *("sqlite_master", "duckdb_tables()", "duckdb_views()", "duckdb_columns()", "duckdb_temporary_files()"),
    *("duckdb_settings()", "pragma_table_info('gold.vault')", "pragma_table_info('silver.users')"),
    *("query('SELECT * FROM gold.vault')", "query('SELECT email FROM silver.users')", "query_table('gold.vault')"),
    *("query_table('silver.users')", "delta_scan('{root}/gold/vault')", "read_parquet('{root}/gold/vault/*.parquet')"),
    *("read_text('{root}/gold/vault/_delta_log/00000000000000000000.json')", "glob('{root}/**')"),
    *("parquet_metadata('{root}/silver/users/*.parquet')", "'{root}/gold/vault/*.parquet'"),
    *("parquet_schema('{root}/silver/users/*.parquet')", "sniff_csv('{root}/gold/vault')"),
)
COLUMNS = (
    *("email", "rank", "contact", "contact.email", "labels", "labels[1]", "payload", "properties", "u.email", "secret"),
    *("COLUMNS(*)", "to_json(contact)", "decode(payload)", "list(email)", "array_agg(rank)", "string_agg(email, ',')"),
    *("struct_pack(a := email)", "getenv('HOME')", "current_setting('lock_configuration')", "stats(email)"),
)
ATTEMPTS = (
    "SUMMARIZE silver.users",
    "DESCRIBE gold.vault",
    "SHOW ALL TABLES",
    "SHOW TABLES FROM gold",
    "EXPLAIN SELECT * FROM gold.vault",
    "EXPLAIN ANALYZE SELECT email FROM silver.users",
    "COPY gold.vault TO '{root}/out.csv'",
    "EXPORT DATABASE '{root}/out'",
    "ATTACH '{root}/other.db'",
    "CREATE VIEW more AS SELECT * FROM gold.vault",
    "CREATE OR REPLACE VIEW silver.users AS SELECT 1",
    "PREPARE p AS SELECT * FROM gold.vault",
    "SET VARIABLE a = (SELECT max(email) FROM gold.vault)",
    "CALL pragma_table_info('gold.vault')",
    "PIVOT silver.users ON email USING count(*)",
    "UNPIVOT silver.users ON email INTO NAME a VALUE b",
    "FROM silver.users SELECT email WHERE email > 'CANARY'",
    "SELECT * FROM silver.users AT (VERSION => 0)",
    "SELECT CAST(email AS INTEGER) FROM silver.users",
    "SELECT error(email) FROM silver.users",
    "SELECT error(CAST(u AS VARCHAR)) FROM silver.users AS u",
    "SELECT u FROM silver.users AS u",
    "SELECT id FROM silver.users WHERE rank BETWEEN 90000 AND 90100 ORDER BY rank",
    "SELECT a.id, b.id FROM silver.users AS a JOIN silver.users AS b USING (email)",
    "SELECT id FROM silver.users WHERE labels[1] LIKE 'CANARY A%'",
    "SELECT approx_count_distinct(email), histogram(rank), mode(email) FROM silver.users",
)
NUMBER = 1000
SEED = 70
SECRET, RANK = "xyzzy", 90001
"""What no query has, but hidden values."""


def lake(home: Path, secret: str, number: int) -> Settings:
    """Tables whose hidden values are these, and whose others are always the same."""
    settings = load_settings(home=home)
    text = f"CANARY {secret} {SECRET}"
    users = {
        "id": [1, 2],
        "city": ["Rome", "Oslo"],
        "email": [text, f"{SECRET} {secret}"],
        "rank": [number, number + 1],
        "labels": [[text], [text, text]],
        "contact": [{"email": text, "street": "A 1"}, {"email": None, "street": "B 2"}],
    }
    hidden = {"id": [1], "email": [text], "secret": [number]}
    message = {"key": ["a", "b"], "payload": [text.encode(), b"{}"], "properties": [text, None]}
    rows = {
        "silver.users": users,
        "silver.users_history": users,
        "gold.orders": {"user_id": [1, 2, 2], "price": [1, 2, 3]},
        "gold.vault": hidden,
        "quarantine.malformed": hidden,
        "bronze.users": message,
    }
    for name, columns in rows.items():
        write_deltalake(settings.table_path(name), pa.table(columns))
    return settings


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Settings]:
    folder = tmp_path_factory.mktemp("lakes")
    return [lake(folder / "1", "A", RANK), lake(folder / "2", "B", RANK + 500)]


def answer(connection: duckdb.DuckDBPyConnection, root: str, sql: str) -> str:
    """The rows, in any order, or the error."""
    try:
        found = run_fenced(connection, sql.replace("{root}", root))
        told = f"{found.columns} {sorted(map(repr, found.rows))}"
    except (LakehouseError, duckdb.Error) as error:
        told = str(error)
    return told.replace(root, "{root}")


def generated() -> list[str]:
    return list(islice(mutated(SEED, tables=TABLES, columns=COLUMNS, dialect="duckdb"), NUMBER))


def test_no_answer_depends_on_what_is_hidden(lakes: Sequence[Settings]) -> None:
    wrong = []
    answered = 0
    opened = [(fenced(each, "", READER), each.warehouse_root) for each in lakes]
    for sql in (*ATTEMPTS, *generated()):
        one, other = (answer(*each, sql) for each in opened)
        answered += one.startswith("[")
        if one != other or SECRET in one or str(RANK) in one:
            wrong.append((sql, one, other))
    assert wrong == []
    assert answered > NUMBER / 5  # else it is not worth much


def test_what_is_hidden_is_there_for_who_has_a_grant(lakes: Sequence[Settings]) -> None:
    everything = Reader(grants=frozenset(("*", "pii")), personal=READER.personal)
    statement = "SELECT u.email, rank, contact.email, labels, secret FROM silver.users u, gold.vault WHERE rank = 90001"
    assert query_fenced(lakes[0], statement, everything).rows == [
        ("CANARY A xyzzy", 90001, "CANARY A xyzzy", ["CANARY A xyzzy"], 90001),
    ]


def test_masked_columns(lakes: Sequence[Settings]) -> None:
    statement = "SELECT * FROM silver.users WHERE contact.email = '***'"
    assert query_fenced(lakes[0], statement, READER).rows == [
        (1, "Rome", "***", None, None, {"email": "***", "street": "A 1"}),
    ]
    assert query_fenced(lakes[0], "SELECT key, payload FROM bronze.users ORDER BY 1", READER).rows == [
        ("a", None),
        ("b", None),
    ]
