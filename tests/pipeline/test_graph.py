from pathlib import Path

from pulsar_lakehouse.pipeline.graph import Note, nodes, picture
from pulsar_lakehouse.pipeline.loading import load
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


def test_a_note_is_a_second_line_and_a_bad_one_is_red(tmp_path: Path) -> None:
    notes = {"bronze.visits": Note("1 h ago"), "gold.counts": Note("failed <now>", is_bad=True)}
    drawn = picture(load(visits_project(tmp_path)).pipeline, notes)
    assert (drawn.count('class="note"'), drawn.count('class="bad"')) == (2, 1)
    assert 'height="52" rx="6" class="bad"/>' in drawn
    assert "failed &lt;now&gt;" in drawn
