"""Which topic `lakehouse trace` takes, if none is named."""

from pathlib import Path

import pytest

from tests.cli.outcome import Command

ENTITY = '{0} = Entity(topic=Topic("{0}", "id BIGINT NOT NULL", changelog=True), key="id", columns="id")\n'


@pytest.mark.parametrize(
    ("entities", "code", "line"),
    [
        (["stores"], 1, "stores 1: no message of this key has landed"),
        (["stores", "users"], 78, "name the topic by --topic: there are stores, users"),
    ],
)
def test_without_facts_it_is_the_only_entity(
    lakehouse: Command, tmp_path: Path, entities: list[str], code: int, line: str
) -> None:
    declarations = tmp_path / "declarations"
    declarations.mkdir()
    text = "from pulsar_lakehouse import Entity, Topic\n" + "".join(map(ENTITY.format, entities))
    declarations.joinpath("states.py").write_text(text)
    done = lakehouse("trace", "1", LAKEHOUSE_DECLARATIONS=str(declarations))
    assert (done.code, done.line) == (code, f"lakehouse: {line}")
