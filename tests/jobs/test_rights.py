"""Which columns have personal data, and who may read what."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from pulsar_lakehouse import Enrichment, Entity, Lookup, Topic
from pulsar_lakehouse.access import Reader
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.operating import may_be_personal
from pulsar_lakehouse.jobs.rights import personal_columns, sql_users_of
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings, load_settings
from tests.personal import declare_personal


def settings_with(folder: Path, grants: dict[str, tuple[str, ...]]) -> Settings:
    settings = load_settings(home=folder / "home", declarations=declare_personal(folder))
    users = {name: SecretStr("long enough") for name in ("ada", "bob")}
    return settings.model_copy(update={"serve": settings.serve.model_copy(update={"users": users, "grants": grants})})


def test_all_that_is_made_from_personal_data_is_personal(tmp_path: Path) -> None:
    own, joined = ("email_address", "last_name"), ("user.email_address", "user.last_name")
    assert personal_columns(pipeline_of(settings_with(tmp_path, {}))) == {
        "silver.users": own,
        "silver.users_history": own,
        "bronze.users": ("key", "payload", "properties"),
        "quarantine.malformed": ("key", "payload", "reason"),
        "gold.enriched_orders": joined,
        "gold.shadow_orders": tuple(f"{side}.{name}" for side in ("after", "before") for name in joined),
        "gold.orders_by_email": ("email", "name"),
        "quarantine.sql_rows": ("keys", "reason"),
    }


@pytest.mark.parametrize(
    ("select", "masked"),
    [
        ("SELECT * FROM silver.users", ("email_address", "last_name")),
        ("SELECT * FROM bronze.users", ("*",)),
        ("SELECT ledger_id AS id, payload AS e FROM bronze.users", ("e",)),
        ("WITH q AS (SELECT * FROM bronze.users) SELECT ledger_id AS id, payload AS e FROM q", ("e", "id")),
        ("SELECT u.id, to_json(struct(u.*)) AS e FROM silver.users u", ("e",)),
        ("SELECT u.id, b.payload AS e FROM silver.users u JOIN bronze.users b ON b.key = u.id", ("e",)),
        ("SELECT id, count(*) AS e FROM silver.users GROUP BY id", ()),
        ("SELECT id, 1 AS e FROM silver.users", ()),
    ],
)
def test_a_select_hides_what_it_may_have_made_from_personal_data(
    tmp_path: Path, select: str, masked: tuple[str, ...]
) -> None:
    settings = settings_with(tmp_path, {})
    (settings.declarations / "sql" / "others.sql").write_text(f"-- keys: id\n-- refresh: full\n{select}")
    assert personal_columns(pipeline_of(settings)).get("gold.others", ()) == masked


def test_a_reader_has_what_is_granted(tmp_path: Path) -> None:
    ada, bob = sql_users_of(settings_with(tmp_path, {"ada": ("gold", "silver.users"), "bob": ("*", "pii")})).values()
    assert [ada.may_read(name) for name in ("gold.more", "silver.users", "silver.users_history")] == [True, True, False]
    assert (ada.masked("silver.users"), bob.masked("silver.users")) == (("email_address", "last_name"), ())
    assert bob.may_read("quality.results")
    assert [ada.masked(name) for name in ("gold.backfills", "gold.a_copy")] == [(), ("*",)]


def test_without_grants_all_tables_are_there_and_masked(tmp_path: Path) -> None:
    [reader, _] = sql_users_of(settings_with(tmp_path, {})).values()
    assert isinstance(reader, Reader)
    assert reader.may_read("bronze.users")
    assert reader.hides("bronze.users", "payload")


@pytest.mark.parametrize(
    ("grants", "line"),
    [
        ({"ada": ("silver.user",)}, "serve.grants ada: silver.user: no such table; did you mean silver.users?"),
        (
            {"ada": ("gilver",)},
            "serve.grants ada: gilver: no such layer; did you mean silver?; there are bronze, silver,",
        ),
        ({"eve": ("gold",)}, "serve.grants eve: no such user in serve.users"),
        ({"ada": ("gold",)}, "serve.grants: bob has none, as others do: give this user [] for no table, or"),
    ],
)
def test_a_wrong_grant_is_told_in_a_line(tmp_path: Path, grants: dict[str, tuple[str, ...]], line: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        sql_users_of(settings_with(tmp_path, grants))
    assert str(refused.value).startswith(line)


STORES = {"topic": Topic("stores", "id BIGINT NOT NULL, city STRING", changelog=True), "columns": "id, city"}


@pytest.mark.parametrize(
    ("pii", "line"),
    [
        ("town", "stores: pii town: must be one of id, city"),
        ("id", "stores: pii id: is of key, by which tables, messages and people name rows: it can't be masked"),
    ],
)
def test_what_can_not_be_personal(pii: str, line: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Entity(key="id", pii=pii, **STORES)  # type: ignore[arg-type]
    assert str(refused.value) == line


def test_a_fact_waits_for_no_personal_data() -> None:
    sales = Topic("sales", "id BIGINT NOT NULL, storeId BIGINT, at TIMESTAMP_MILLIS NOT NULL")
    with pytest.raises(ConfigurationError, match=r"^sales: pii storeId: is of lookup, by which"):
        Enrichment(
            topic=sales,
            columns="id, storeId, at",
            keys=("id",),
            event_time="at",
            day="day",
            lookups=(Lookup(entity=Entity(key="id", **STORES), on="storeId"),),  # type: ignore[arg-type]
            pii="storeId",
        )


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("import math\nfrom pulsar_lakehouse import Entity\nfrom .users import USERS", False),
        ('from pulsar_lakehouse import Entity\nUSERS = Entity(pii="city")', True),
        ("from company import USERS", True),
        ("from ..shared import USERS", True),
        ("import importlib", True),
        ("users = __import__('company')", True),
        ("def", True),
        ("from pulsar_lakehouse import Entity\nUSERS = Entity(**open('users.json'))", True),
    ],
)
def test_declarations_are_loaded_if_they_may_have_personal_data(tmp_path: Path, text: str, may: bool) -> None:
    (tmp_path / "users.py").write_text(text)
    assert may_be_personal(tmp_path) == may
