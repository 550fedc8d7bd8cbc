import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableOptimizer
from pyspark.sql import SparkSession

from pulsar_lakehouse.errors import BusyError, ConfigurationError, LakehouseError
from pulsar_lakehouse.jobs.maintenance import Maintained, clean_logs, maintain
from pulsar_lakehouse.jobs.steps import enriching, merging, reconcile_all
from pulsar_lakehouse.jobs.streams import Outcome, catch_up
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.declared import LOG_CHECKPOINT_INTERVAL
from pulsar_lakehouse.tables.lake import Lake
from pulsar_lakehouse.tables.stored import stored_table
from tests.lake import expected, land_literally, own_home, tables
from tests.messages import item, order, user
from tests.oracle import Oracle
from tests.shop import ENRICHMENTS, ENTITIES

WAVES = [
    [user(1, place=0), item(1, place=1), order(1, place=2), order(2, user=2, place=3)],
    [user(1, "Zoë", when=1, place=4), item(2, place=5), order(3, place=6), order(4, user=3, place=7)],
    [user(3, place=8), order(1, place=9), order(5, item=2, place=10)],
]


@pytest.fixture
def project(lake: Lake, tmp_path: Path) -> Settings:
    project = own_home(lake.settings, tmp_path)
    for wave in WAVES:
        land_literally(Lake(lake.spark, project), wave)
        follow(Lake(lake.spark, project))
    return project


def follow(lake: Lake) -> list[Outcome]:
    merged = catch_up(lake.settings, merging(lake, ENTITIES))
    return [*merged, *catch_up(lake.settings, enriching(lake, ENRICHMENTS))]


def files(project: Settings, table: str) -> int:
    return len(DeltaTable(project.table_path(table)).file_uris())


def make_table(project: Settings, name: str) -> DeltaTable:
    """A table of two files. Its folder also has an old file that it no longer needs, and one that was just written."""
    path = Path(project.table_path(name))
    path.mkdir(parents=True)
    for _ in range(2):
        write_deltalake(path, pa.table({"id": [1]}), mode="append")
    for file in ("old.parquet", "new.parquet"):
        (path / file).touch()
    os.utime(path / "old.parquet", (0, 0))
    return DeltaTable(path)


def stray(project: Settings, table: str) -> set[str]:
    """The files of `make_table` that still exist without belonging to the table."""
    return {file.name for file in Path(project.table_path(table)).glob("???.parquet")}


def test_old_files_go_while_others_write_and_leave_no_trace_in_the_log(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = own_home(settings, tmp_path)
    monkeypatch.setattr("pulsar_lakehouse.jobs.maintenance.PATIENCE", 0)
    before = make_table(project, "silver.users").version()
    with write_lease(project, ["silver.users"]):
        [done] = maintain(project)
    assert (done.removed, done.compacted) == (1, 0)
    assert done.busy.startswith(f"silver.users is being written by pid {os.getpid()} ")
    assert stray(project, "silver.users") == {"new.parquet"}
    assert DeltaTable(project.table_path("silver.users")).version() == before


def test_all_tables_are_vacuumed_before_one_is_compacted_as_that_takes_room(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = own_home(settings, tmp_path)
    names = ["bronze.items", "bronze.users"]
    for name in names:
        make_table(project, name)
    seen = []

    def compact(self: object, **_: object) -> None:
        seen.append([stray(project, name) for name in names])
        raise OSError("No space left on device (os error 28)")

    monkeypatch.setattr(TableOptimizer, "compact", compact)
    with pytest.raises(LakehouseError) as error:
        list(maintain(project))
    assert seen == [[{"new.parquet"}, {"new.parquet"}]] * 2
    assert str(error.value) == "; ".join(f"{name}: no space left on the disk" for name in names)


def test_a_table_that_fails_keeps_no_other_from_its_maintenance(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    broken, _ = make_table(project, "bronze.items"), make_table(project, "bronze.users")
    log = Path(project.table_path("bronze.items"), "_delta_log", f"{broken.version():020}.json")
    log.write_text("no JSON")
    done: list[Maintained] = []
    with pytest.raises(LakehouseError, match=r"^bronze\.items: .+$") as error:
        done.extend(maintain(project))
    assert "\n" not in str(error.value)
    assert [(each.table, each.removed, each.compacted, bool(each.failed)) for each in done] == [
        ("bronze.items", 0, 0, True),
        ("bronze.users", 1, 2, False),
    ]


def test_a_table_that_is_being_written_comes_last_and_has_its_turn_when_it_is_lent(
    settings: Settings, tmp_path: Path
) -> None:
    project = own_home(settings, tmp_path)
    for name in ("silver.items", "silver.users"):
        make_table(project, name)
    with write_lease(project, ["silver.items"]) as lease:
        maintenance = maintain(project)
        first = next(maintenance)
        with lease.lent():
            [second] = maintenance
        with pytest.raises(BusyError), write_lease(project, ["silver.items"]):
            pass
    assert [(each.table, each.compacted, each.busy) for each in (first, second)] == [
        ("silver.users", 2, ""),
        ("silver.items", 2, ""),
    ]


def test_a_table_that_only_gets_appends_is_compacted_while_it_is_written(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    make_table(project, "bronze.users").alter.set_table_properties({"delta.appendOnly": "true"})
    with write_lease(project, ["bronze.users"]):
        [done] = maintain(project)
    assert (done.compacted, done.busy) == (2, "")


def test_old_logs_go(tmp_path: Path) -> None:
    old, new = tmp_path / "run" / "old.log", tmp_path / "run" / "new.log"
    old.parent.mkdir()
    for log in (old, new):
        log.touch()
    os.utime(old, (0, 0))
    assert clean_logs(tmp_path, keep=timedelta(days=30)) == 1
    assert list(old.parent.iterdir()) == [new]


def test_folders_that_old_logs_leave_empty_go_too(tmp_path: Path) -> None:
    old = tmp_path / "dag" / "run" / "task" / "1.log"
    old.parent.mkdir(parents=True)
    (tmp_path / "dag" / "new run").mkdir()
    old.touch()
    os.utime(old, (0, 0))
    assert clean_logs(tmp_path, keep=timedelta(days=30)) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["dag", "new run"]


def test_a_log_that_vanishes_meanwhile_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    assert clean_logs(tmp_path, keep=timedelta(days=30)) == 0


def test_small_files_become_one_and_no_stream_takes_them_for_news(spark: SparkSession, project: Settings) -> None:
    done = {each.table: each for each in maintain(project)}
    assert done["bronze.orders"].compacted >= 3
    assert files(project, "bronze.orders") == 1
    assert {each.busy for each in done.values()} == {""}
    assert {outcome.rows for outcome in follow(Lake(spark, project))} == {0}
    oracle = Oracle()
    for wave in WAVES:
        oracle.run(wave)
    assert tables(project) == expected(oracle)
    assert all(reconciliation.holds for reconciliation in reconcile_all(Lake(spark, project)))


def test_a_log_has_fewer_checkpoints_while_they_are_large(
    spark: SparkSession, project: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = ("bronze.orders", "silver.users", "gold.enriched_orders")

    def intervals() -> list[str | None]:
        return [Lake(spark, project).table(name).delta_property(LOG_CHECKPOINT_INTERVAL) for name in changed]

    for name in changed:
        stored_table(project, name).create_checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr("pulsar_lakehouse.jobs.maintenance.LARGE", 0)
        list(maintain(project))
    assert intervals() == ["100", "100", "100"]
    assert {outcome.rows for outcome in follow(Lake(spark, project))} == {0}
    list(maintain(project))
    assert intervals() == ["10", "10", "10"]
    later = [user(4, place=11), order(6, user=4, place=12)]
    land_literally(Lake(spark, project), later)
    follow(Lake(spark, project))
    oracle = Oracle()
    for wave in [*WAVES, later]:
        oracle.run(wave)
    assert tables(project) == expected(oracle)


def test_another_home_does_not_maintain_a_folder_of_tables(settings: Settings, tmp_path: Path) -> None:
    first, second = (
        settings.model_copy(update={"home": tmp_path / name, "warehouse": str(tmp_path / "tables")})
        for name in ("first", "second")
    )
    list(maintain(first))
    with pytest.raises(ConfigurationError, match=f"only the home .*:{tmp_path}/first may write here"):
        list(maintain(second))
