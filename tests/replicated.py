"""A database that is replicated in tests: its tables, what happens in them, and how silver must look then.

A trigger in the database records each change of a row. That is the oracle of the histories; of the latest state, it is
`SELECT *`.
"""

import random
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

from pulsar_lakehouse.settings import Settings
from tests.debezium import MARKS, Form
from tests.lake import read

Row = dict[str, Any]
Change = tuple[datetime | None, Row | None]
"""Since when a key has a row, or None if it has been deleted."""

META = ("position", "_at", "_created", "_gone")
"""Columns of recorded changes that are none of the row's."""
TEXT_IN_SILVER = ("uuid", "jsonb", "inet")
"""Types of Postgres that Debezium sends as text."""

SETTING = f"""
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
    CREATE DOMAIN share AS numeric(5, 4) CHECK (VALUE BETWEEN 0 AND 1);
    CREATE TABLE recorded (
        position bigserial PRIMARY KEY, name text, old jsonb, new jsonb, transaction xid8 DEFAULT pg_current_xact_id()
    );
    CREATE FUNCTION record() RETURNS trigger AS $$ BEGIN
        INSERT INTO recorded (name, old, new) VALUES (TG_TABLE_NAME, to_jsonb(OLD), to_jsonb(NEW));
        RETURN NULL;
    END $$ LANGUAGE plpgsql;
    CREATE FUNCTION record_truncation() RETURNS trigger AS $$ BEGIN
        EXECUTE format('INSERT INTO recorded (name, old) SELECT %L, to_jsonb(each) FROM %I AS each',
            TG_TABLE_NAME, TG_TABLE_NAME);
        RETURN NULL;
    END $$ LANGUAGE plpgsql;
    CREATE TABLE {MARKS} (id bigserial PRIMARY KEY);
"""
RECORDED = """
    CREATE TRIGGER changes AFTER INSERT OR UPDATE OR DELETE ON {0} FOR EACH ROW EXECUTE FUNCTION record();
    CREATE TRIGGER truncations BEFORE TRUNCATE ON {0} FOR EACH STATEMENT EXECUTE FUNCTION record_truncation();
"""


@dataclass(frozen=True)
class Table:
    name: str
    key: tuple[str, ...]
    columns: str
    """In Postgres."""
    fields: str
    """Of the topic, beside the metadata."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Columns of silver, by an older name of them in the database."""
    more: str = ""
    """SQL after the table has been created."""
    has_key: bool = True
    """Whether the database knows the key."""

    def create(self) -> str:
        key = f", PRIMARY KEY ({', '.join(self.key)})" if self.has_key else ""
        return f"CREATE TABLE {self.name} ({self.columns}{key}); {RECORDED.format(self.name)} {self.more}"

    def declare(self, prefix: str, form: Form) -> str:
        """The declaration of its entity, for topics that begin with this prefix."""
        names = [each.split()[0] for each in self.fields.replace("\n", " ").split(", ")]
        old = {new: f"coalesce({new}, {old}) AS {new}" for old, new in self.renamed.items()}
        columns = [old.get(name, name) for name in names if name not in self.renamed]
        encoding = "JSON" if self.has_key else "NONE"
        is_server = form in (Form.SERVER, Form.SERVER_PLAIN)
        return f'''
{self.name.upper()} = Entity(
    topic=Topic(
        "{self.name}",
        """{self.fields}, __source_lsn BIGINT, __source_ts_ms TIMESTAMP_MILLIS""",
        topic="{prefix}.public.{self.name}",
        envelope=Debezium(),
        changelog=True,
        {f"key_encoding=KeyEncoding.{encoding}," if is_server else ""}
    ),
    key={self.key!r},
    columns="{", ".join(columns)}, __source_lsn AS lsn",
    sequence_by="lsn",
    occurred_at="__source_ts_ms",
)
'''


TABLES = (
    Table(
        "customers",
        ("id",),
        "id int, name text NOT NULL, email text, rating int, mood mood DEFAULT 'ok', tags text[], profile jsonb, "
        "about text, photo bytea, registered timestamptz NOT NULL DEFAULT now()",
        "id INT NOT NULL, name STRING NOT NULL, email STRING, mail STRING, phone STRING, rating INT, mood STRING, "
        "tags ARRAY<STRING>, profile STRING, about STRING, photo BINARY, registered TIMESTAMP NOT NULL",
        renamed={"email": "mail"},
        more="ALTER TABLE customers ALTER about SET STORAGE EXTERNAL, ALTER photo SET STORAGE EXTERNAL",
    ),
    Table(
        "addresses",
        ("customer_id", "kind"),
        "customer_id int, kind varchar(10), street text, since date",
        "customer_id INT NOT NULL, kind STRING NOT NULL, street STRING, since DATE",
    ),
    Table(
        "products",
        ("sku",),
        "sku text, title text, price numeric(10, 2), weight numeric, discount share, sizes int[], "
        "available boolean DEFAULT true, length real, volume double precision, stock smallint, made_at inet",
        "sku STRING NOT NULL, title STRING, price DECIMAL(10,2), weight DECIMAL(20,6), discount DECIMAL(5,4), "
        "sizes ARRAY<INT>, available BOOLEAN, length DOUBLE, volume DOUBLE, stock INT, made_at STRING",
    ),
    Table(
        "orders",
        ("id",),
        "id uuid, customer_id int, placed timestamptz, shipped timestamp, paid timestamp(3), day date, at time, "
        "took interval, note text",
        "id STRING NOT NULL, customer_id INT, placed TIMESTAMP, shipped TIMESTAMP_MICROS, paid TIMESTAMP_MILLIS, "
        "day DATE, at BIGINT, took BIGINT, note STRING",
    ),
    Table(
        "order_lines",
        ("order_id", "line"),
        "order_id uuid, line smallint, sku text, quantity int NOT NULL DEFAULT 1, amount numeric(12, 4)",
        "order_id STRING NOT NULL, line INT NOT NULL, sku STRING, quantity BIGINT NOT NULL, amount DECIMAL(12,4)",
    ),
    Table(
        "documents",
        ("id",),
        "id bigint, title text, body text, scan bytea, meta jsonb",
        "id BIGINT NOT NULL, title STRING, body STRING, scan BINARY, meta STRING",
        more="ALTER TABLE documents REPLICA IDENTITY FULL, ALTER body SET STORAGE EXTERNAL, "
        "ALTER scan SET STORAGE EXTERNAL",
    ),
    Table("carts", ("id",), "id int, what text", "id INT NOT NULL, what STRING"),
    Table(
        "visits",
        ("session",),
        "session uuid, page text, at timestamptz",
        "session STRING NOT NULL, page STRING, at TIMESTAMP",
        more="ALTER TABLE visits REPLICA IDENTITY FULL",
        has_key=False,
    ),
)
BY_NAME = {table.name: table for table in TABLES}
OUT_OF_LINE = ("about", "photo", "body", "scan")
"""Columns whose long values Postgres keeps elsewhere. It does not log them if they don't change."""
ALTERATIONS = (
    "ALTER TABLE customers ADD COLUMN phone text",
    "ALTER TABLE customers RENAME COLUMN email TO mail",
    "ALTER TABLE customers DROP COLUMN rating",
    "ALTER TABLE order_lines ALTER COLUMN quantity TYPE bigint",
    "ALTER TABLE addresses ALTER COLUMN kind TYPE varchar(40)",
)


def declare(folder: Path, prefix: str, form: Form, tables: Iterator[Table] | tuple[Table, ...] = TABLES) -> None:
    """Write the project's declarations of tables that a connector of this form sends."""
    folder.mkdir(parents=True, exist_ok=True)
    heading = "from pulsar_lakehouse import Debezium, Entity, KeyEncoding, Topic\n"
    (folder / "database.py").write_text(heading + "".join(table.declare(prefix, form) for table in tables))


class Replicated:
    """The database, and what must be in silver."""

    def __init__(self, url: str, tables: tuple[Table, ...] = TABLES) -> None:
        self.url, self.tables = url, tables
        self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)
        for name in TEXT_IN_SILVER:
            self.connection.adapters.register_loader(name, TextLoader)
        self.execute(SETTING)
        for table in tables:
            self.execute(table.create())

    def execute(self, query: str, *values: Any) -> None:
        self.connection.execute(query, values or None)

    def begin(self) -> None:
        """Forget what has been recorded. A snapshot tells the rows that there are now, and not since when."""
        self.execute("TRUNCATE recorded")
        for table in self.tables:
            self.execute(
                f"INSERT INTO recorded (name, new, transaction) SELECT '{table.name}', to_jsonb(each), NULL "
                f"FROM {table.name} AS each"
            )

    def rows(self, query: str, *values: Any) -> list[Row]:
        return self.connection.execute(query, values or None).fetchall()

    def names(self, table: Table) -> set[str]:
        """The columns that the table has now, as silver names them."""
        columns = self.rows(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            table.name,
        )
        return {table.renamed.get(row["attname"], row["attname"]) for row in columns}

    def expected(self, table: Table) -> dict[tuple[Any, ...], Row]:
        """By key, the table's rows as silver has them."""
        return by_key(table, (in_silver(table, row) for row in self.rows(f"SELECT * FROM {table.name}")))

    def expected_history(self, table: Table) -> dict[tuple[Any, ...], list[Change]]:
        """By key, the changes that the trigger has recorded, in their order."""
        of_row = f"(jsonb_populate_record(NULL::{table.name}, {{}} || {self._renames(table)})).*"
        about = (
            "position, pg_xact_commit_timestamp(transaction::xid) AS _at, old IS NULL AS _created, new IS NULL AS _gone"
        )
        found = {
            part: self.rows(
                f"SELECT {about}, {of_row.format(part, part)} FROM recorded WHERE name = %s ORDER BY 1", table.name
            )
            for part in ("old", "new")
        }
        changes: dict[tuple[Any, ...], list[Change]] = {}
        for old, new in zip(found["old"], found["new"], strict=True):
            at = _in_millis(new["_at"])
            before, after = (in_silver(table, row) for row in (old, new))
            keys = [tuple(row[name] for name in table.key) for row in (before, after)]
            if not old["_created"] and (new["_gone"] or keys[0] != keys[1]):
                changes.setdefault(keys[0], []).append((at, None))
            if not new["_gone"]:
                changes.setdefault(keys[1], []).append((at, after))
        return {key: without_repeats(each) for key, each in changes.items()}

    def _renames(self, table: Table) -> str:
        """SQL for the renamed columns of an older record."""
        columns = self.rows("SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass", table.name)
        there = {row["attname"] for row in columns}
        pairs = [f"'{new}', {{}}->'{old}'" for old, new in table.renamed.items() if new in there]
        # What was recorded under the new name is not replaced.
        return f"jsonb_strip_nulls(jsonb_build_object({', '.join(pairs)}))" if pairs else "'{{}}'::jsonb"


def in_silver(table: Table, row: Row) -> Row:
    """A row of Postgres as silver has it."""
    names = {name: table.renamed.get(name, name) for name in row if name not in META}
    return {new: _value(row[name]) for name, new in names.items()}


def _value(value: Any) -> Any:
    match value:
        case datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case datetime():
            return value.astimezone(UTC)
        case time():
            return int((datetime.combine(date.min, value) - datetime.min) / timedelta(microseconds=1))
        case timedelta():
            return int(value / timedelta(microseconds=1))
        case memoryview():
            return bytes(value)
    return value


def _in_millis(at: datetime | None) -> datetime | None:
    return at and at.replace(microsecond=at.microsecond // 1000 * 1000).astimezone(UTC)


def by_key(table: Table, rows: Iterator[Row]) -> dict[tuple[Any, ...], Row]:
    found = {tuple(row[name] for name in table.key): row for row in rows}
    return dict(sorted(found.items(), key=str))


def without_repeats(changes: list[Change]) -> list[Change]:
    """The changes that change something: a snapshot tells rows again, and updates may set what is there already."""
    return [next(group) for _, group in groupby(changes, key=lambda change: change[1])]


def differences(expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[str]:
    """Some of what differs, by key. A change since None may be found with any time."""
    differing = (key for key in {**expected, **found} if not _agree(expected.get(key), found.get(key)))
    return [f"{key}: {_shown(expected.get(key), found.get(key))}" for key in islice(differing, 3)]


def _agree(expected: Any, found: Any) -> bool:
    if not isinstance(expected, list) or not isinstance(found, list):
        return bool(expected == found)
    pairs = zip(expected, found, strict=False)
    agree = (each[1] == other[1] and each[0] in (None, other[0]) for each, other in pairs)
    return len(expected) == len(found) and all(agree)


def _shown(expected: Any, found: Any) -> str:
    """What differs in rows, or from the first change on that differs."""
    match expected, found:
        case dict(), dict():
            names = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
            return "; ".join(f"{name} {_cut(expected.get(name))}, not {_cut(found.get(name))}" for name in names)
        case list(), list() if len(expected) == len(found):
            at = next(
                at for at, pair in enumerate(zip(expected, found, strict=True)) if not _agree(*([x] for x in pair))
            )
            (since, row), (other_since, other_row) = expected[at], found[at]
            return f"change {at} since {since}, not {other_since}: {_shown(row, other_row)}"
        case list(), list():
            since = [[str(change[0]) for change in changes] for changes in (expected, found)]
            return f"changes since {since[0]}, not {since[1]}"
    return f"{_cut(expected)}, not {_cut(found)}"


def _cut(value: Any) -> str:
    return repr(value)[:60]


def held(settings: Settings, table: Table, names: set[str]) -> dict[tuple[Any, ...], Row]:
    """By key, the rows of the silver table that are not deleted, with the columns of these names."""
    rows = (row for row in read(settings, f"silver.{table.name}") if row["deleted_at"] is None)
    return by_key(table, ({name: row[name] for name in row if name in names} for row in rows))


def held_history(settings: Settings, table: Table, names: set[str]) -> dict[tuple[Any, ...], list[Change]]:
    """By key, the versions of the silver history in their order. A truncation only ends versions."""
    rows = sorted(read(settings, f"silver.{table.name}_history"), key=lambda row: row["sequence"]["by"]["lsn"] or 0)
    versions: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["sequence"]["by"]["lsn"] is not None:  # a tombstone after its delete says nothing
            versions.setdefault(tuple(row[name] for name in table.key), []).append(row)
    return {key: _changes(rows, names) for key, rows in versions.items() if None not in key}


def _changes(versions: list[Row], names: set[str]) -> list[Change]:
    changes: list[Change] = []
    for version, following in zip_longest(versions, versions[1:]):
        is_deleted, until = version["deleted_at"] is not None, version["valid_until"]
        state = None if is_deleted else {name: version[name] for name in version if name in names}
        changes.append((version["valid_from"], state))
        if until is not None and (following is None or until < following["valid_from"]):
            changes.append((until, None))
    return without_repeats(changes)


class Workload:
    """Random changes, the same for the same seed."""

    def __init__(self, database: Replicated, seed: int) -> None:
        self.database, self.random, self.number = database, random.Random(seed), 0

    def run(self, transactions: int) -> None:
        """Commit so many transactions, each of a few changes in several tables; some are rolled back.

        One more begins before them and is committed after them: its changes are earlier in the log, and sent later.
        """
        with psycopg.connect(self.database.url) as longest:
            for table in self.database.tables:
                if table.name != "addresses":  # others would wait for such a key
                    self._insert(table, longest)
            for _ in range(transactions):
                with self.database.connection.transaction() as transaction:
                    for _ in range(self.random.choice([1, 1, 2, 3, 6])):
                        self._change(self.random.choice(self.database.tables))
                    if self.random.random() < 0.05:
                        raise psycopg.Rollback(transaction)

    def _change(self, table: Table) -> None:
        kinds: list[Callable[[Table], None]] = [self._insert, self._update, self._delete, self._update_key]
        weights = [5, 8, 2, 0 if table.name in ("visits",) else 1]
        (change,) = self.random.choices(kinds, weights)
        change(table)

    def _insert(self, table: Table, connection: psycopg.Connection[Any] | None = None) -> None:
        values = {name: self._value(table, name, kind) for name, kind in self._columns(table).items()}
        names, places = ", ".join(values), ", ".join(["%s"] * len(values))
        conflict = "ON CONFLICT DO NOTHING" if table.has_key else ""
        query = f"INSERT INTO {table.name} ({names}) VALUES ({places}) {conflict}"
        (connection or self.database.connection).execute(query, [*values.values()])

    def _update(self, table: Table) -> None:
        kinds = {name: kind for name, kind in self._columns(table).items() if name not in table.key}
        names = self.random.sample(sorted(kinds), self.random.randint(1, min(3, len(kinds))))
        set_ = ", ".join(f"{name} = %s" for name in names)
        values = [self._value(table, name, kinds[name]) for name in names]
        self.database.execute(f"UPDATE {table.name} SET {set_} WHERE {self._some(table)}", *values)

    def _delete(self, table: Table) -> None:
        self.database.execute(f"DELETE FROM {table.name} WHERE {self._some(table)}")

    def _update_key(self, table: Table) -> None:
        """Give a row another key that no row has. Columns that are out of line would be lost: they are not logged."""
        name = table.key[-1]
        value, chosen = self._value(table, name, self._columns(table)[name]), self._some(table)
        others = " AND ".join(f"other.{each} = {table.name}.{each}" for each in table.key[:-1]) or "true"
        taken = f"SELECT 1 FROM {table.name} AS other WHERE {others} AND other.{name}::text = %s::text"
        sizes = [f"coalesce(octet_length({each}), 0) < 1000" for each in OUT_OF_LINE if each in self._columns(table)]
        inline = " AND ".join(sizes) if table.name == "customers" else "true"
        self.database.execute(
            f"UPDATE {table.name} SET {name} = %s WHERE {chosen} AND NOT EXISTS ({taken}) AND {inline}", value, value
        )

    def _some(self, table: Table) -> str:
        """A condition that holds of one row, or of none if the table is empty."""
        key, number = ", ".join(table.key), self.random.random()
        at = f"floor({number} * (SELECT count(*) FROM {table.name}))::int"
        return f"({key}) = (SELECT {key} FROM {table.name} ORDER BY {key} OFFSET {at} LIMIT 1)"

    def _columns(self, table: Table) -> dict[str, str]:
        found = self.database.rows(
            "SELECT attname, atttypid::regtype::text AS kind FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            table.name,
        )
        return {row["attname"]: row["kind"] for row in found}

    def _value(self, table: Table, name: str, kind: str) -> Any:
        needed = (*table.key, "name", "registered", "quantity")
        if name not in needed and self.random.random() < 0.2:
            return None
        if name in OUT_OF_LINE:
            size = self.random.choice([3, 200, 3_000, 9_000])  # Postgres keeps 2,000 bytes and more out of line
            return self.random.randbytes(size) if kind == "bytea" else self.text(size)
        if name == "customer_id":
            return self.random.randint(1, 30)
        if name == "id" and kind in ("integer", "bigint"):
            self.number += 1
            return self.number
        return VALUES[kind](self)

    def text(self, size: int = 8) -> str:
        return "".join(self.random.choices(string.ascii_letters + " äß中'\"\\\n{}", k=size))

    def time(self) -> datetime:
        return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.random.randrange(10**14))

    def uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))


VALUES: dict[str, Callable[[Workload], Any]] = {
    "integer": lambda made: made.random.randint(-(2**31), 2**31 - 1),
    "smallint": lambda made: made.random.randint(0, 2**15 - 1),
    "bigint": lambda made: made.random.randint(-(2**63), 2**63 - 1),
    "text": lambda made: made.text(),
    "character varying": lambda made: made.random.choice(["home", "work", "other", "holiday"]),
    "mood": lambda made: made.random.choice(["sad", "ok", "happy"]),
    "text[]": lambda made: [made.random.choice([None, made.text(3)]) for _ in range(made.random.randrange(4))],
    "integer[]": lambda made: [made.random.randrange(100) for _ in range(made.random.randrange(4))],
    "jsonb": lambda made: Jsonb({"a": [1, 2.5, None], "ä": made.text(3)}),
    "timestamp with time zone": lambda made: made.time(),
    "timestamp without time zone": lambda made: made.time().replace(tzinfo=None),
    "date": lambda made: made.time().date(),
    "time without time zone": lambda made: made.time().time(),
    "interval": lambda made: timedelta(seconds=made.random.randrange(10**6), microseconds=7),
    "uuid": lambda made: made.uuid(),
    "boolean": lambda made: made.random.random() < 0.5,
    "numeric": lambda made: Decimal(made.random.randrange(10**8)).scaleb(-made.random.randrange(1, 6)),
    "share": lambda made: Decimal(made.random.randrange(10**4)).scaleb(-4),
    "real": lambda made: made.random.choice([0.5, -2.25, 1024.0]),
    "double precision": lambda made: made.random.uniform(-1e9, 1e9),
    "inet": lambda made: f"10.0.0.{made.random.randrange(256)}",
}
"""Makes a value, by the name of its type in Postgres."""
