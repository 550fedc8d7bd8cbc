from pathlib import Path

from pipeline.graph import nodes, picture
from pipeline.loading import load
from tests.pipeline.projects import visits_project


def test_what_is_made_from_what(tmp_path: Path) -> None:
    found = nodes(load(visits_project(tmp_path, "-- refresh", "-- publish: postgres counts\n-- refresh")).pipeline)
    assert [(node.layer, node.name, node.sources, node.how) for node in found] == [
        ("topics", "topic visitors", (), "changelog"),
        ("topics", "topic visits", (), ""),
        ("bronze", "bronze.visitors", ("topic visitors",), "land"),
        ("bronze", "bronze.visits", ("topic visits",), "land"),
        ("silver", "silver.visitors", ("bronze.visitors",), "merge by id"),
        ("silver", "silver.visitors_history", ("bronze.visitors",), "all versions"),
        ("gold", "gold.enriched_visits", ("bronze.visits", "silver.visitors"), "join visitor by visitor_id, latest"),
        ("SQL", "gold.counts", ("gold.enriched_visits",), "incremental, by city"),
        ("sinks", "postgres counts", ("gold.counts",), "publish"),
    ]


def test_the_picture_has_a_box_for_each_and_a_line_for_each_source(tmp_path: Path) -> None:
    drawn = picture(load(visits_project(tmp_path)).pipeline)
    assert (drawn.count("<rect "), drawn.count("<path ")) == (8, 7)
    assert '<text x="40" y="52">topic visitors</text>' in drawn
