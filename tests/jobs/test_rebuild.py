"""Tables that were made with other declarations: what a run refuses, and what a rebuild makes of them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.contracts.checks import quarantine
from pulsar_lakehouse.damage import DamagedError
from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.declarations.users import USERS
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.gold.enrichment.declaration import Enrichment
from pulsar_lakehouse.gold.enrichment.reconciliation import reconcile_facts
from pulsar_lakehouse.gold.enrichment.writes import discard
from pulsar_lakehouse.jobs import rebuild as module
from pulsar_lakehouse.jobs.quarantine import Chosen, actions_of, ask
from pulsar_lakehouse.jobs.rebuild import rebuild, wanted
from pulsar_lakehouse.jobs.steps import enriching, merging, reconcile_all
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.records import step_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.entity import Entity
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent
from pulsar_lakehouse.tables.lake import Lake, LakeTable
from pulsar_lakehouse.tables.stored import files_of, stored_table
from tests.crashes import fail_after
from tests.jobs.test_crashes import is_free, start, wait_until
from tests.lake import expected, land_literally, own_home, read, tables
from tests.messages import item, message, order, user
from tests.oracle import Oracle
from tests.shop import SHOP

MESSAGES = [
    user(1, "Ada", when=1),
    user(1, "Eve", when=2, place=1, createdAt=0),
    user(2, place=2),
    message("users", b"{", key="3", place=3),
    item(1),
    order(1, place=1),
    order(2, place=2, user=9),
    order(1, place=3, price=9.9),
    order(3, place=4, price=-1.0),
    order(4, place=5, price=7.0),
    order(5, place=6, user=2),
]
LOUD_USERS = replace(USERS, columns={**USERS.columns, "first_name": "upper(firstName)"})
OTHER_USERS = replace(LOUD_USERS, sequence_by="created_at")
LOUD_ORDERS = replace(
    ORDERS,
    columns={**ORDERS.columns, "item_name": "upper(itemName)"},
    checks={"is_cheap": quarantine("price < 5")},
    lookups=(replace(ORDERS.lookups[0], entity=LOUD_USERS), ORDERS.lookups[1]),
)
OTHER_ORDERS = replace(
    LOUD_ORDERS,
    keys=("line_item_id", "price"),
    lookups=(replace(ORDERS.lookups[0], entity=OTHER_USERS), ORDERS.lookups[1]),
)
SAYS_REBUILD = "or run `lakehouse rebuild silver.users --approve`"


def made_with(lake: Lake, users: Entity, orders: Enrichment) -> Settings:
    land_literally(lake, MESSAGES)
    catch_up(lake.settings, merging(lake, [users, ITEMS]))
    catch_up(lake.settings, enriching(lake, [orders]))
    return lake.settings


@pytest.fixture(scope="module")
def other(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project in which the order, the SQL, the rules and the facts' keys are others."""
    run = lake.settings.run.model_copy(update={"retries": 0})
    project = own_home(lake.settings, tmp_path_factory.mktemp("other")).model_copy(update={"run": run})
    return made_with(Lake(lake.spark, project), OTHER_USERS, OTHER_ORDERS)


@pytest.fixture
def project(other: Settings, tmp_path: Path) -> Settings:
    shutil.copytree(other.home, tmp_path, dirs_exist_ok=True)
    return own_home(other, tmp_path)


def rebuilt(lake: Lake, *names: str) -> list[str]:
    return list(rebuild(lake, wanted(SHOP, names)))


def check(lake: Lake) -> None:
    assert tables(lake.settings) == expected(Oracle().run(MESSAGES))
    assert all(each.holds for each in reconcile_all(lake))


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        (replace(USERS, sequence_by=("created_at", "id")), "^users: sequence_by created_at, id: silver.users has the"),
        (
            replace(OTHER_USERS, columns={**OTHER_USERS.columns, "created_at": "createdAt + INTERVAL 1 SECOND"}),
            r"^silver.users: sequence_by is createdAt \+ INTERVAL 1 SECOND AS created_at, but its rows ",
        ),
        (
            replace(OTHER_USERS, occurred_at="createdAt"),
            "^silver.users: occurred_at is createdAt, but its rows were made with nothing: keep that",
        ),
        (replace(OTHER_USERS, key="parent_user_id"), "^silver.users: key is .* AS parent_user_id, but its rows .* id:"),
        (
            replace(OTHER_USERS, columns={**OTHER_USERS.columns, "id": "abs(id)"}),
            r"^silver.users: key is abs\(id\) AS id, but its rows were made with id: keep that",
        ),
    ],
)
def test_another_key_or_order_is_refused(spark: SparkSession, project: Settings, declared: Entity, line: str) -> None:
    with pytest.raises(ConfigurationError, match=line) as error:
        catch_up(project, merging(Lake(spark, project), [declared]))
    assert str(error.value).endswith(SAYS_REBUILD)


def test_other_keys_of_facts_are_refused(spark: SparkSession, project: Settings) -> None:
    line = r"^gold.enriched_orders: keys is invoice_id, line_item_id, but its rows were made with line_item_id, price: "
    with pytest.raises(ConfigurationError, match=f"{line}keep that, or run `lakehouse rebuild gold.enriched_orders "):
        catch_up(project, enriching(Lake(spark, project), [ORDERS]))


def test_silver_and_the_gold_that_joins_it_are_made_again(spark: SparkSession, project: Settings) -> None:
    assert rebuilt(Lake(spark, project), "silver.users") == [
        "silver.users: made again from bronze.users",
        "gold.enriched_orders: made again from bronze.orders, 1 wait",
        "The topic enriched_orders has the messages of the old table: delete it before you publish again",
    ]
    check(Lake(spark, project))


def test_messages_are_read_once_and_what_was_asked_for_is_done(lake: Lake, tmp_path: Path) -> None:
    """The stream goes on behind what was recomputed."""
    lake = Lake(lake.spark, own_home(lake.settings, tmp_path))
    project = made_with(lake, USERS, replace(LOUD_ORDERS, lookups=ORDERS.lookups))
    before = step_record(project, "enrich orders").rows
    ask(project, actions_of(project, "discard", Chosen(ORDERS, "true", "true", {}), who="Ada", note=""))
    assert rebuilt(lake, ORDERS.gold_table) == ["gold.enriched_orders: 2 facts changed, 0 wait"]
    assert [row["line_item_id"] for row in read(project, ORDERS.discarded.name)] == [2]
    assert step_record(project, "enrich orders").rows == before
    assert reconcile_facts(lake, ORDERS).holds


PARTS = ("create_tables", "discard", "backfill", "_quarantine_rejected", "keep_definition", "begin_behind")


@pytest.mark.long
def test_a_crash_while_gold_is_recomputed_is_ended_by_a_run(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = replace(LOUD_ORDERS, lookups=ORDERS.lookups)
    made = made_with(Lake(lake.spark, own_home(lake.settings, tmp_path / "made")), USERS, orders)
    for part in PARTS:
        shutil.copytree(made.home, tmp_path / part)
        project = own_home(made, tmp_path / part)
        with monkeypatch.context() as patch:
            patch.setattr(module, part, fail_after(getattr(module, part)))
            with pytest.raises(RuntimeError, match="power cut"):
                rebuilt(Lake(lake.spark, project), ORDERS.gold_table)
        catch_up(project, enriching(Lake(lake.spark, project), [ORDERS]))
        assert reconcile_facts(Lake(lake.spark, project), ORDERS).holds
        rebuilt(Lake(lake.spark, project), ORDERS.gold_table)
        check(Lake(lake.spark, project))


FORGET, REMOVE, CATCH_UP = (module, "forget_progress"), (LakeTable, "remove"), (module, "catch_up")
STEPS = (FORGET, FORGET, REMOVE, REMOVE, CATCH_UP, (module, "begin_again_unless_fits"), CATCH_UP)


@pytest.mark.long
def test_a_crash_after_each_step_loses_nothing(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rebuild ends what a crash has left. Once all tables are removed, so does a run."""
    for number, (owner, step) in enumerate(STEPS):
        calls = STEPS[:number].count((owner, step))
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, after(calls, getattr(owner, step)))
            with pytest.raises(RuntimeError, match="power cut"):
                rebuilt(Lake(spark, project), "silver.users")
        if number > STEPS.index(CATCH_UP):
            catch_up(project, merging(Lake(spark, project), [USERS, ITEMS]))
            catch_up(project, enriching(Lake(spark, project), [ORDERS]))
            check(Lake(spark, project))
    rebuilt(Lake(spark, project), "silver.users")
    check(Lake(spark, project))


def after(calls: int, step: Callable[..., object]) -> Callable[..., object]:
    """The step, which fails after it was done once more than `calls`."""
    done = 0

    def counted(*arguments: object, **named: object) -> object:
        nonlocal done
        done += 1
        return (fail_after(step) if done > calls else step)(*arguments, **named)

    return counted


@pytest.mark.long
def test_gold_whose_keys_and_types_stay_is_changed_in_place(lake: Lake, tmp_path: Path) -> None:
    project = made_with(Lake(lake.spark, own_home(lake.settings, tmp_path)), LOUD_USERS, LOUD_ORDERS)
    id, before = Lake(lake.spark, project).table(ORDERS.gold_table).id, read(project, ORDERS.gold_table)
    assert {(row["line_item_id"], row["user"]["first_name"], row["item_name"]) for row in before} == {
        (1, "EVE", "PIE"),
        (3, "EVE", "PIE"),
        (5, "ADA", "PIE"),
    }
    assert rebuilt(Lake(lake.spark, project), "silver.users")[1] == "gold.enriched_orders: 2 facts changed, 1 wait"
    assert Lake(lake.spark, project).table(ORDERS.gold_table).id == id
    check(Lake(lake.spark, project))


def test_a_rebuild_gives_all_facts_the_values_of_a_renamed_column(lake: Lake, tmp_path: Path) -> None:
    """A run refuses it, as new facts would have NULL under the old name."""
    columns = {"label" if name == "item_name" else name: sql for name, sql in ORDERS.columns.items()}
    project = made_with(Lake(lake.spark, own_home(lake.settings, tmp_path)), USERS, replace(ORDERS, columns=columns))
    lake = Lake(lake.spark, project)
    with pytest.raises(ConfigurationError, match=r"^gold\.enriched_orders: label is probably renamed to item_name: "):
        catch_up(project, enriching(lake, [ORDERS]))
    assert rebuilt(lake, "gold.enriched_orders") == ["gold.enriched_orders: 3 facts changed, 1 wait"]
    gold = lake.table("gold.enriched_orders").read()
    assert (gold.count(), gold.where("item_name IS NULL").count()) == (3, 0)
    catch_up(project, enriching(lake, [ORDERS]))


def test_gold_alone_is_made_again_and_discarded_facts_stay_discarded(spark: SparkSession, project: Settings) -> None:
    discard(
        Lake(spark, project), OTHER_ORDERS, Lake(spark, project).table(ORDERS.waiting.name).read().select("position")
    )
    assert [row["item_name"] for row in read(project, ORDERS.discarded.name)] == ["PIE"]
    assert rebuilt(Lake(spark, project), ORDERS.gold_table) == [
        "gold.enriched_orders: made again from bronze.orders, 0 wait",
        "The topic enriched_orders has the messages of the old table: delete it before you publish again",
    ]
    assert [(row["line_item_id"], row["item_name"]) for row in read(project, ORDERS.discarded.name)] == [(2, "pie")]
    assert reconcile_facts(Lake(spark, project), ORDERS).holds


@pytest.mark.long
def test_a_rebuild_that_is_killed_is_done_by_the_next(spark: SparkSession, project: Settings) -> None:
    names = ["silver.users", "gold.enriched_orders"]
    for removed in names:
        before = Path(project.table_path(removed)).stat().st_ino
        process = start(project, "rebuild", "silver.users", "--approve")
        wait_until(partial(is_another, Path(project.table_path(removed)), before))
        process.kill()
        assert process.wait() == -9
        wait_until(lambda: is_free(project, names))
    last = start(project, "rebuild", "silver.users", "--approve")
    assert last.wait(300) == 0, (project.home / "rebuild.log").read_text()
    check(Lake(spark, project))


def is_another(folder: Path, inode: int) -> bool:
    return not folder.exists() or folder.stat().st_ino != inode


def test_bronze_can_not_be_rebuilt() -> None:
    with pytest.raises(ConfigurationError, match=r"^bronze.users: can't be rebuilt; there are silver.items, "):
        wanted(SHOP, ["bronze.users"])


def test_a_table_in_sql_is_computed_again_with_those_that_are_made_from_it_named() -> None:
    found = wanted(SHOP, ["gold.revenue_by_hour"])
    assert [each.name for each in found.in_sql] == found.written == ["gold.revenue_by_hour"]


def test_tables_with_damaged_files_are_made_again(lake: Lake, tmp_path: Path) -> None:
    lake = Lake(lake.spark, own_home(lake.settings, tmp_path))
    project = made_with(lake, USERS, ORDERS)
    state, gold = (flip_a_bit(project, name) for name in ("silver.users", "gold.enriched_orders"))
    with pytest.raises(Exception, match="Checksum error") as error:
        lake.table("silver.users").read().collect()
    line = f"silver.users: {state} is damaged (its checksums differ): `lakehouse rebuild silver.users --approve` makes "
    assert (cause_of(error.value), is_permanent(error.value)) == (f"{line}the table again", True)
    assert rebuilt(lake, "silver.users") == [
        f"silver.users: {state} damaged, made again from bronze.users",
        f"gold.enriched_orders: {gold} damaged, made again from bronze.orders, 1 wait",
        "The topic enriched_orders has the messages of the old table: delete it before you publish again",
    ]
    check(lake)
    flip_a_bit(project, "bronze.users")
    with pytest.raises(DamagedError, match=r"^bronze.users: .* damaged: nothing is made from it again; see "):
        rebuilt(lake, "silver.users")
    assert tables(project) == expected(Oracle().run(MESSAGES))


def flip_a_bit(project: Settings, table: str) -> str:
    """Change one bit of a file of the table; returns its path."""
    path = files_of(stored_table(project, table))["path"][0].as_py()
    file = Path(project.table_path(table), unquote(path))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return unquote(path)


def test_what_depends_on_a_table_is_rebuilt_or_named() -> None:
    found = wanted(SHOP, ["silver.items_history"])
    assert (found.entities, found.enrichments) == ((ITEMS,), (ORDERS,))
    assert found.sql_tables == tuple(table.name for table in SHOP.sql_tables)
