import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pulsar_lakehouse.domains.shop.declarations.items import ITEMS
from pulsar_lakehouse.domains.shop.workload import Workload
from pulsar_lakehouse.inspection.table_status import committed_at, table_statuses
from pulsar_lakehouse.jobs.steps import landing, merging
from pulsar_lakehouse.jobs.streams import catch_up
from pulsar_lakehouse.pulsar.backlog import topic_status
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.lake import own_home, own_topics


def test_a_row_is_deleted_once_its_time_has_come(settings: Settings, tmp_path: Path) -> None:
    project, now = own_home(settings, tmp_path), datetime.now(UTC)
    past, future = now - timedelta(days=1), now + timedelta(days=1)
    for times in ([past, None], [future, future], [past, future, None, past], [None]):
        rows = pa.table({"deleted_at": pa.array(times, pa.timestamp("us", "UTC"))})
        write_deltalake(project.table_path("silver.places"), rows, mode="append")
    [found] = table_statuses(project)
    assert found.deleted == 3


def test_lag_is_the_age_of_the_first_commit_that_was_not_read(settings: Settings, tmp_path: Path) -> None:
    project = own_home(settings, tmp_path)
    bronze, silver = Path(project.table_path("bronze.items")), Path(project.table_path("silver.items"))
    for path in (bronze, bronze, bronze, silver):
        write_deltalake(path, pa.table({"id": [1]}), mode="append")
    now = time.time()
    for version, age in enumerate((9_000, 5_000, 100)):
        os.utime(bronze / f"_delta_log/{version:020}.json", (now - age, now - age))
    checkpoint = Path(project.checkpoint_path("silver.items"))
    for folder in ("commits", "offsets"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "commits" / "0").touch()

    def lag(offsets: str) -> tuple[int | None, float | None]:
        (checkpoint / "offsets" / "0").write_text(offsets)
        [found] = [each for each in table_statuses(project) if each.name == "silver.items"]
        return found.lag, found.lag_seconds and found.lag_seconds // 1_000

    offset = json.dumps({"reservoirId": DeltaTable(bronze).metadata().id, "reservoirVersion": 1, "index": -1})
    assert lag(f"v1\n{{}}\n{offset}\n") == (2, 5)
    assert lag(f"v1\n{{}}\n{offset}\n{offset[:60]}") == (2, 5)
    assert lag(offset.replace("1,", "3,")) == (0, 0)
    assert lag(f"v1\n{{}}\n{offset[:60]}") == (None, None)
    assert committed_at(project, "bronze.items", 7).timestamp() == pytest.approx(now - 9_000, abs=1)


STEADY = Workload(duplicates=0, malformed=0)


def test_what_waits_in_the_broker_and_what_in_bronze(lake: Lake, endpoint: Endpoint, tmp_path: Path) -> None:
    project = own_topics(lake.settings, endpoint, tmp_path, [ITEMS.topic])

    def lags() -> dict[str, int | None]:
        return {status.name: status.lag for status in table_statuses(project)}

    produce([(ITEMS.topic, STEADY.first("items"))], endpoint, project)
    waits = topic_status(ITEMS.topic, endpoint, project)
    assert waits.lag_seconds is not None
    assert (waits.messages, waits.backlog > 0, 0 < waits.lag_seconds < 600) == (2_198, True, True)
    catch_up(project, landing(Lake(lake.spark, project), [ITEMS.topic]))
    catch_up(project, merging(Lake(lake.spark, project), [ITEMS]))
    landed = topic_status(ITEMS.topic, endpoint, project)
    assert (landed.backlog, landed.lag_seconds) == (0, 0)
    assert (lags()["bronze.items"], lags()["silver.items"]) == (None, 0)
    produce([(ITEMS.topic, STEADY.late("items"))], endpoint, project)
    catch_up(project, landing(Lake(lake.spark, project), [ITEMS.topic]))
    [silver] = [status for status in table_statuses(project) if status.name == "silver.items"]
    assert (silver.lag, silver.rows, silver.deleted) == (1, 2_198, 0)
    assert silver.lag_seconds is not None
    assert 0 < silver.lag_seconds < 600
