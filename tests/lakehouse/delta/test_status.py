from pathlib import Path

from pyspark.sql import SparkSession

from domains.shop.declarations.items import ITEMS
from domains.shop.workload import Workload
from jobs.steps import landing, merging
from jobs.streams import catch_up
from lakehouse.delta.status import table_statuses
from lakehouse.pulsar.endpoint import Endpoint
from lakehouse.pulsar.produce import produce
from lakehouse.pulsar.status import topic_status
from lakehouse.settings import Settings
from tests.lake import own_topics

STEADY = Workload(duplicates=0, malformed=0)


def test_what_waits_in_the_broker_and_what_in_bronze(
    spark: SparkSession, settings: Settings, endpoint: Endpoint, tmp_path: Path
) -> None:
    lake = own_topics(settings, endpoint, tmp_path, [ITEMS.topic])

    def lags() -> dict[str, int | None]:
        return {status.name: status.lag for status in table_statuses(lake)}

    produce([(ITEMS.topic, STEADY.first("items"))], endpoint, lake)
    waits = topic_status(ITEMS.topic, endpoint, lake)
    assert (waits.messages, waits.backlog > 0, 0 < waits.lag_seconds < 600) == (2_198, True, True)
    catch_up(lake, landing(spark, lake, [ITEMS.topic]))
    catch_up(lake, merging(spark, lake, [ITEMS]))
    landed = topic_status(ITEMS.topic, endpoint, lake)
    assert (landed.backlog, landed.lag_seconds) == (0, 0)
    assert (lags()["bronze.items"], lags()["silver.items"]) == (None, 0)
    produce([(ITEMS.topic, STEADY.late("items"))], endpoint, lake)
    catch_up(lake, landing(spark, lake, [ITEMS.topic]))
    [silver] = [status for status in table_statuses(lake) if status.name == "silver.items"]
    assert (silver.lag, silver.rows, silver.deleted) == (1, 2_198, 0)
    assert silver.lag_seconds is not None
    assert 0 < silver.lag_seconds < 600
