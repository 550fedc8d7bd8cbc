"""What `lakehouse send` refuses before it sends anything. tests/cli/test_init.py sends."""

from pathlib import Path

import pytest

from pulsar_lakehouse.cli.send import send_command
from pulsar_lakehouse.errors import ConfigurationError
from tests.pipeline.projects import VISITORS, project


@pytest.mark.parametrize(
    ("topic", "content", "line"),
    [
        ("visits", b"", "visits: not declared; there are visitors, ships"),
        ("ships", b'{"payload": {}}', "some.jsonl:1: payload: can't be written with the schema {"),
        ("visitors", None, "some.jsonl: can't be read: No such file or directory"),
        ("visitors", b'{"payload": "\xff"}', "some.jsonl: can't be read: 'utf-8' codec can't decode byte 0xff"),
        ("visitors", b'{"payload": null}\n{"id": 1}', "some.jsonl:2: must be an object with a payload"),
    ],
)
def test_what_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, content: bytes | None, line: str
) -> None:
    ships = VISITORS.replace("VISITORS", "SHIPS").replace("visitors", "ships")
    ships = ships.replace("changelog=True", "encoding=Encoding.AVRO")
    ships = ships.replace("import Entity,", "import Encoding, Entity,")
    project(tmp_path, visitors=VISITORS, zships=ships)
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("some.jsonl").write_bytes(content)
    with pytest.raises(ConfigurationError) as error:
        send_command(topic, Path("some.jsonl"))
    assert str(error.value).startswith(line)
