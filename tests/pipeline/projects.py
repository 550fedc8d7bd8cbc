"""A small project, as its files are written: visitors, and the visits that look them up."""

from pathlib import Path

VISITORS = """
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pulsar_lakehouse import Entity, Topic, fail, quarantine, warn

VISITORS_TOPIC = Topic(
    name="visitors",
    record="Visitor",
    changelog=True,
    fields=StructType([StructField("id", LongType(), nullable=False), StructField("city", StringType())]),
)
VISITORS = Entity(
    topic=VISITORS_TOPIC,
    key="id",
    columns={"id": "id", "city": "upper(city)"},
    deleted_at="CAST(NULL AS TIMESTAMP)",
)
"""
VISITS = """
from declarations.visitors import VISITORS
from pyspark.sql.types import LongType, StructField, StructType
from pulsar_lakehouse import Enrichment, Lookup, Topic, fail, quarantine, warn, Match

VISITS_TOPIC = Topic(
    name="visits",
    record="Visit",
    fields=StructType([StructField(name, LongType()) for name in ("id", "visitorId", "at")]),
)
VISITS = Enrichment(
    topic=VISITS_TOPIC,
    columns={"id": "id", "visitor_id": "visitorId", "visited_at": "timestamp_millis(at)"},
    keys=("id",),
    event_time="visited_at",
    day="visit_date",
    lookups=(Lookup(name="visitor", entity=VISITORS, on="visitor_id"),),
    checks={"is_counted": quarantine("id > 0")},
)
"""
COUNTS = """-- Visits of each city.
-- keys: city
-- refresh: incremental
SELECT visitor.city, count(*) AS visits FROM gold.enriched_visits GROUP BY visitor.city
"""


def project(folder: Path, **files: str) -> Path:
    """A folder with these files, by name: SQL files are those whose text begins with a comment of SQL."""
    declarations = folder / "declarations"
    (declarations / "sql").mkdir(parents=True)
    for name, text in files.items():
        (declarations / (f"sql/{name}.sql" if text.startswith("--") else f"{name}.py")).write_text(text)
    return declarations


def visits_project(folder: Path, given: str = "", instead: str = "") -> Path:
    """The project, with one text in one of its files replaced."""
    files = {"visitors": VISITORS, "visits": VISITS, "counts": COUNTS}
    if given:
        assert [given in text for text in files.values()].count(True) == 1, "which file?"
    return project(folder, **{name: text.replace(given, instead) if given else text for name, text in files.items()})
