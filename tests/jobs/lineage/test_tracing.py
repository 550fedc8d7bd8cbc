"""`lakehouse lineage COLUMN`."""

from pathlib import Path

import pytest

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.jobs.lineage.tracing import Source, trace_columns
from pulsar_lakehouse.pipeline.loading import load
from tests.pipeline.projects import visits_project


def test_a_column_comes_from_the_fields_of_topics(tmp_path: Path) -> None:
    pipeline = load(visits_project(tmp_path)).pipeline
    field = Source(name="topic visitors.city", sql="", sources=())
    landed = Source(name="bronze.visitors.payload.city", sql="", sources=(field,))
    merged = Source(name="silver.visitors.city", sql="upper(city)", sources=(landed,))
    joined = Source(name="gold.enriched_visits.visitor.city", sql="", sources=(merged,))
    assert trace_columns(pipeline, "gold.counts.city") == [Source(name="gold.counts.city", sql="", sources=(joined,))]
    assert trace_columns(pipeline, "gold.enriched_visits.visitor.city") == [joined]
    assert [each.name for each in trace_columns(pipeline, "gold.enriched_visits.visitor")] == [
        "gold.enriched_visits.visitor.id",
        "gold.enriched_visits.visitor.city",
        "gold.enriched_visits.visitor.deleted_at",
    ]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("gold.nothing", "gold.nothing: must be one of bronze.visitors, .*, gold.counts, or a column of it"),
        ("gold.counts.cities", "gold.counts.cities: no such column is declared; there are city, visits"),
    ],
)
def test_what_is_not_declared_is_refused(tmp_path: Path, name: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        trace_columns(load(visits_project(tmp_path)).pipeline, name)
