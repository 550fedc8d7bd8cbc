from pathlib import Path

from pipeline.graph import nodes, picture
from pipeline.loading import load
from tests.pipeline.projects import visits_project


def test_what_is_made_from_what(tmp_path: Path) -> None:
    found = nodes(load(visits_project(tmp_path, "-- refresh", "-- publish: postgres counts\n-- refresh")).pipeline)
    assert [(node.layer, node.name, node.sources) for node in found] == [
        ("topics", "topic visitors", ()),
        ("topics", "topic visits", ()),
        ("bronze", "bronze.visitors", ("topic visitors",)),
        ("bronze", "bronze.visits", ("topic visits",)),
        ("silver", "silver.visitors", ("bronze.visitors",)),
        ("silver", "silver.visitors_history", ("bronze.visitors",)),
        ("gold", "gold.enriched_visits", ("bronze.visits", "silver.visitors")),
        ("SQL", "gold.counts", ("gold.enriched_visits",)),
        ("sinks", "postgres counts", ("gold.counts",)),
    ]


def test_the_picture_has_a_box_for_each_and_a_line_for_each_source(tmp_path: Path) -> None:
    drawn = picture(load(visits_project(tmp_path)).pipeline)
    assert (drawn.count("<rect "), drawn.count("<path ")) == (8, 7)
    assert '<text x="40" y="52">topic visitors</text>' in drawn
