"""What is made from what, from topics to sinks: in order, and as a picture."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from pulsar_lakehouse.pipeline.declared import Pipeline

WIDTH, HEIGHT, APART, BELOW = 250, 34, 60, 16
"""The size of a box, and the gaps between boxes, in pixels."""
NOTED = 18
"""How much higher boxes with a note are."""


@dataclass(frozen=True)
class Node:
    """A topic, a table or a sink."""

    layer: str
    name: str
    sources: tuple[str, ...] = ()
    how: str = ""


def nodes(pipeline: Pipeline) -> list[Node]:
    """All of the pipeline, layer by layer."""
    return [*_tables(pipeline), *_sinks(pipeline)]


@dataclass(frozen=True)
class Note:
    """A second line in a box."""

    text: str
    is_bad: bool = False


def picture(pipeline: Pipeline, notes: Mapping[str, Note] | None = None, *, styled: bool = True) -> str:
    """The nodes as SVG: a column for each layer, and a line from each source. `notes` are by node.

    With `styled`, it has its own colours; without, those of the page that it is in.
    """
    tall = HEIGHT if notes is None else HEIGHT + NOTED
    places: dict[str, tuple[int, int]] = {}
    layers = [list(group) for _, group in groupby(nodes(pipeline), key=lambda node: node.layer)]
    for column, layer in enumerate(layers):
        for row, node in enumerate(layer):
            places[node.name] = (APART // 2 + column * (WIDTH + APART), APART // 2 + row * (tall + BELOW))
    width = len(layers) * (WIDTH + APART)
    height = APART + max(map(len, layers)) * (tall + BELOW)
    parts = [*_lines(layers, places, tall), *_boxes(layers, places, tall, notes or {})]
    style = "<style>text{font:13px sans-serif}rect{fill:#eef4fb;stroke:#4a78a8}path{fill:none;stroke:#9ab}"
    style += ".note{font-size:11px;fill:#567}.bad{fill:#fbeaea;stroke:#b33}" * (notes is not None) + "</style>"
    body = "\n".join((style, *parts) if styled else parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">\n{body}\n</svg>\n'


def _tables(pipeline: Pipeline) -> Iterator[Node]:
    for topic in pipeline.topics:
        for origin in topic.origins:
            yield Node("topics", origin, how="changelog" if topic.changelog else "")
    for entity in pipeline.sources:
        yield from (Node("topics", origin, how="source") for origin in entity.origins)
    landed = [*((each.topic, each.origins) for each in pipeline.entities)]
    landed += [(each.topic, each.topic.origins) for each in pipeline.enrichments]
    for bronze, origins in {topic.bronze_table: origins for topic, origins in landed}.items():
        yield Node("bronze", bronze, origins, "land")
    for entity in pipeline.entities:
        sources = (entity.topic.bronze_table,)
        yield Node("silver", entity.table.name, sources, f"merge by {', '.join(entity.keys)}")
        if entity.keeps_history:
            yield Node("silver", entity.history.name, sources, "all versions")
    for facts in pipeline.enrichments:
        joins = ", ".join(f"join {each.name} {each.said}" for each in facts.joins)
        yield Node("gold", facts.gold_table, (facts.topic.bronze_table, *facts.state_tables), joins or "append")
    for table in pipeline.sql_tables:
        yield Node("SQL", table.name, table.sources, f"{table.refresh}, by {', '.join(table.keys)}")


def _sinks(pipeline: Pipeline) -> Iterator[Node]:
    for topic, facts in pipeline.published.items():
        yield Node("sinks", f"topic {topic}", (facts.gold_table,), "publish")
    for table in pipeline.sql_tables:
        for kind, sink in (("topic", table.topic), ("postgres", table.postgres)):
            if sink:
                yield Node("sinks", f"{kind} {sink}", (table.name,), "publish")


def _lines(layers: Sequence[Sequence[Node]], places: dict[str, tuple[int, int]], tall: int) -> Iterator[str]:
    for node in (node for layer in layers for node in layer):
        x, y = places[node.name]
        for source in node.sources:
            if source in places:
                left, top = places[source]
                start, end = f"{left + WIDTH},{top + tall // 2}", f"{x},{y + tall // 2}"
                bend = f"{left + WIDTH + APART},{top + tall // 2} {x - APART},{y + tall // 2}"
                yield f'<path d="M{start} C{bend} {end}"/>'


def _boxes(
    layers: Sequence[Sequence[Node]], places: dict[str, tuple[int, int]], tall: int, notes: Mapping[str, Note]
) -> Iterator[str]:
    for node in (node for layer in layers for node in layer):
        (x, y), note = places[node.name], notes.get(node.name)
        bad = ' class="bad"' if note and note.is_bad else ""
        said = f'<text x="{x + 10}" y="{y + 41}" class="note">{escape(note.text)}</text>' if note else ""
        yield (
            f'<g><title>{escape(node.how)}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{tall}" rx="6"{bad}/>'
            f'<text x="{x + 10}" y="{y + 22}">{escape(node.name)}</text>{said}</g>'
        )
