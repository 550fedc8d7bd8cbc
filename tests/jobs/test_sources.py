"""State from sources through the pipeline: any sequence of snapshots, with crashes between, as the oracle says."""

import json
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_lakehouse import Enrichment, Entity, Files, Lookup, Topic, quarantine
from pulsar_lakehouse.bronze.sources import SourceLanding, with_snapshot
from pulsar_lakehouse.contracts.sources import Source
from pulsar_lakehouse.errors import SourceError
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.jobs.rebuild import Wanted, rebuild
from pulsar_lakehouse.jobs.steps import enriching, landing_sources, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.locks import Permit
from pulsar_lakehouse.records import step_record
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.silver.reconciliation import reconcile_entity
from pulsar_lakehouse.tables.lake import Lake
from tests import oracle_sources as oracle
from tests.crashes import MERGE_HISTORY, Write, crash_after
from tests.lake import land_literally, own_home
from tests.oracle import Message, Position
from tests.oracle_sources import Row, Snapshot

LAND = Write("append_arrow", r"bronze\.")
FIELDS = "id BIGINT NOT NULL, name STRING, changedAt TIMESTAMP"
Cuts = Sequence[bool]


def project(lake: Lake, folder: Path) -> Lake:
    run = lake.settings.run.model_copy(update={"retries": 0})
    own = own_home(lake.settings, folder / "home").model_copy(update={"run": run})
    return Lake(lake.spark, own)


def regions(folder: Path, *, with_times: bool = False) -> Entity:
    source = Files("regions", FIELDS, path=str(folder / "*.csv"), max_deletes=1)
    entity = Entity(source=source, key="id", columns="id, name")
    return replace(entity, occurred_at="changedAt") if with_times else entity


def write(folder: Path, snapshot: Snapshot) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"{key},{_field(name)},{at.isoformat() if at else ''}\n" for key, (name, at) in snapshot.items()]
    (folder / "regions.csv").write_text("id,name,changedAt\n" + "".join(lines))


def _field(name: str | None) -> str:
    return "" if name is None else '"' + name.replace('"', '""') + '"'


def land(lake: Lake, entity: Entity) -> int:
    assert isinstance(entity.source, Source)
    return SourceLanding(lake, entity.source, entity.source_keys)(Permit())


def numbers(home: Settings) -> list[int]:
    return [number for (number,) in query(home, "SELECT DISTINCT ledger_id FROM bronze.regions ORDER BY 1").fetchall()]


def landed(home: Settings) -> list[dict[int, Row | None]]:
    """The changes in bronze, snapshot by snapshot. It fails if a position or a change is there twice."""
    name = "decode(payload)::JSON ->> 'name'"
    rows = f"SELECT ledger_id, key, payload IS NULL, {name} FROM bronze.regions ORDER BY ledger_id"
    found: dict[int, dict[int, Row | None]] = {}
    for number, key, is_gone, name in query(home, rows).fetchall():
        assert int(key) not in found.setdefault(number, {})
        found[number][int(key)] = None if is_gone else (name, None)
    return list(found.values())


NAMES = st.sampled_from(["a", "b", "", 'é"\n,\\', None])
SNAPSHOTS = st.lists(st.dictionaries(st.integers(1, 4), NAMES.map(lambda name: (name, None))), min_size=1, max_size=6)


@settings(max_examples=12, deadline=None)
@given(snapshots=SNAPSHOTS, crashes=st.lists(st.booleans(), min_size=6, max_size=6))
def test_any_snapshots_with_crashes_between_land_as_their_differences(
    snapshots: list[Snapshot], crashes: list[bool], lake: Lake
) -> None:
    """A crash after the commit, before anything is remembered. The next run reads what the source is then."""
    with TemporaryDirectory() as folder:
        own, files = Lake(lake.spark, own_home(lake.settings, Path(folder) / "home")), Path(folder) / "files"
        for snapshot, crash in zip(snapshots, crashes, strict=False):
            write(files, snapshot)
            with crash_after(LAND if crash else Write("append_arrow", "none")), suppress(RuntimeError):
                land(own, regions(files))
        land(own, regions(files))
        assert landed(own.settings) == oracle.changes(snapshots)


def names_at_times(seed: int, number: int, *, with_times: bool) -> list[Snapshot]:
    chance = random.Random(seed)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    snapshots: list[Snapshot] = []
    for _ in range(number):
        before = dict(snapshots[-1]) if snapshots else {}
        for key in chance.sample(range(1, 7), 3):
            at = begin + timedelta(days=chance.randrange(100)) if with_times and chance.random() < 0.7 else None
            before[key] = (chance.choice(["x", "y", None]), at)
        for key in chance.sample(range(1, 7), 2):
            before.pop(key, None)
        snapshots.append(before)
    return snapshots


@pytest.mark.parametrize("with_times", [False, True], ids=["as read", "with times of their own"])
def test_tables_are_those_of_the_oracle(with_times: bool, lake: Lake, tmp_path: Path) -> None:
    own = project(lake, tmp_path)
    entity = regions(tmp_path / "files", with_times=with_times)
    snapshots = names_at_times(7, 9, with_times=with_times)
    for place, snapshot in enumerate(snapshots):
        write(tmp_path / "files", snapshot)
        with crash_after(LAND if place % 3 == 1 else Write("append_arrow", "none")), suppress(RuntimeError):
            land(own, entity)
        if place in (2, 5):
            with crash_after(MERGE_HISTORY), suppress(Exception):
                catch_up(own.settings, merging(own, [entity]))
    land(own, entity)
    catch_up(own.settings, merging(own, [entity]))
    changed = oracle.changes(snapshots)
    before = latest(own.settings), history(own.settings)
    assert before == (oracle.latest(snapshots[-1], changed), oracle.history(changed, numbers(own.settings)))
    reconciled = reconcile_entity(own, entity)
    assert isinstance(entity.source, Source)
    assert (with_snapshot(own, entity.source, reconciled).snapshot, reconciled.holds) == (len(snapshots[-1]), True)
    list(rebuild(own, Wanted(entities=(entity,), enrichments=(), sql_tables=())))
    assert (latest(own.settings), history(own.settings)) == before


def latest(home: Settings) -> list[tuple[object, ...]]:
    return query(home, "SELECT id, name, deleted_at IS NOT NULL FROM silver.regions ORDER BY id").fetchall()


def history(home: Settings) -> list[oracle.Version]:
    columns = "id, name, valid_from, valid_until, deleted_at IS NOT NULL"
    found = query(home, f"SELECT {columns} FROM silver.regions_history ORDER BY ALL").fetchall()
    return oracle.in_order(oracle.Version(*row) for row in found)


SALES = Enrichment(
    topic=Topic("sales", "id BIGINT NOT NULL, regionId BIGINT, soldAt TIMESTAMP NOT NULL"),
    columns="id, regionId AS region_id, soldAt AS sold_at",
    keys=("id",),
    event_time="sold_at",
    day="sale_date",
    lookups=(),
)


def sale(id: int, region: int, sold_at: datetime) -> Message:
    payload = json.dumps({"id": id, "regionId": region, "soldAt": sold_at.isoformat()}).encode()
    return Message("sales", Position(0, 1, id, -1), None, payload, sold_at, sold_at)


def test_facts_wait_for_rows_of_a_source_and_are_corrected_by_later_ones(lake: Lake, tmp_path: Path) -> None:
    own, files = project(lake, tmp_path), tmp_path / "files"
    entity = regions(files, with_times=True)
    sales = replace(SALES, lookups=(Lookup(entity=entity, on="region_id", name="region", join="as_of"),))
    noon = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
    land_literally(own, [sale(1, 1, noon), sale(2, 2, noon)], [sales.topic])
    hour, found = timedelta(hours=1), []
    north, south = ("North", noon - 2 * hour), ("South", noon - 2 * hour)
    for snapshot in ({1: north}, {1: ("Nord", noon + hour), 2: south}, {1: ("Norden", noon - hour), 2: south}):
        write(files, snapshot)
        land(own, entity)
        catch_up(own.settings, merging(own, [entity]))
        catch_up(own.settings, enriching(own, [sales]))
        found.append(query(own.settings, "SELECT id, region.name FROM gold.enriched_sales ORDER BY id").fetchall())
    assert found == [[(1, "North")], [(1, "North"), (2, "South")], [(1, "Norden"), (2, "South")]]


def test_a_lost_row_of_bronze_is_a_problem(lake: Lake, tmp_path: Path) -> None:
    own = project(lake, tmp_path)
    entity = regions(tmp_path / "files")
    write(tmp_path / "files", {1: ("a", None), 2: ("b", None)})
    land(own, entity)
    catch_up(own.settings, merging(own, [entity]))
    bronze = own.table("bronze.regions")
    with bronze.changeable():
        bronze.delta.delete("key = '1'")
    assert isinstance(entity.source, Source)
    found = with_snapshot(own, entity.source, reconcile_entity(own, entity))
    files = f"files {tmp_path}/files/*.csv"
    assert found.problems[-1] == f"the last snapshot of {files} has 2 rows, and bronze.regions 1"


def test_a_row_that_breaks_the_contract_is_quarantined_and_keeps_its_state(lake: Lake, tmp_path: Path) -> None:
    own = project(lake, tmp_path)
    entity = replace(regions(tmp_path / "files"), checks={"named": quarantine("name <> ''")})
    for name in ("a", ""):
        write(tmp_path / "files", {1: (name, None)})
        land(own, entity)
    catch_up(own.settings, merging(own, [entity]))
    reasons = query(own.settings, "SELECT reason FROM quarantine.malformed").fetchall()
    assert (latest(own.settings), reasons) == ([(1, "a", False)], [("fails named",)])
    assert reconcile_entity(own, entity).holds


def test_a_source_that_fails_does_not_stop_the_others(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = project(lake, tmp_path)
    entity, gone = regions(tmp_path / "files"), Files("gone", FIELDS, path=str(tmp_path / "none.csv"))
    write(tmp_path / "files", {1: ("a", None)})
    streams = landing_sources(own, [entity, replace(entity, source=gone, topic=gone.topic)])
    done = {each.name: each.rows for each in catch_up(own.settings, streams)}
    line = f"land gone: files {tmp_path}/none.csv: there is no such file in {tmp_path}"
    assert done == {"land regions": 1, "land gone": 0}
    assert [step_record(own.settings, name).failure for name in ("land gone", "land regions")] == [line, ""]
    assert line in capsys.readouterr().err


def test_a_source_that_fails_is_left_alone_for_a_while(lake: Lake, tmp_path: Path) -> None:
    own = project(lake, tmp_path)
    entity = regions(tmp_path / "files")
    assert isinstance(entity.source, Source)
    landing = SourceLanding(own, entity.source, entity.source_keys)
    with pytest.raises(SourceError):
        landing(Permit())
    write(tmp_path / "files", {1: ("a", None)})
    with pytest.raises(SourceError):
        landing(Permit())
    landing.failed = None
    assert landing(Permit()) == 1
