"""`--json`: each command gives what docs/json.md shows, and nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.outcome import Command
from tests.cli.sold import Sold

PAGE = Path(__file__).parent.parent.parent / "docs" / "json.md"
EXAMPLES = dict(re.findall(r"^## `lakehouse (.+?)`\n.*?^```json\n(.*?)^```", PAGE.read_text(), re.M | re.S))


def steady(value: Any) -> Any:
    """The value without what differs from run to run: times, durations, sizes, and positions of messages."""
    match value:
        case dict():
            sizes = ("bytes", "bytes_kept", "version")
            return {
                name: "number" if name in sizes or (name.endswith("seconds") and each is not None) else steady(each)
                for name, each in value.items()
            }
        case list():
            return [steady(each) for each in value]
        case str():
            text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME", value)
            return re.sub(r"\d+/\d+/-?\d+(/-?\d+)?", "PLACE", re.sub(r"by \S+$", "by PRODUCER", text))
    return value


def differences(shown: Any, given: Any, place: str = "") -> list[str]:
    """Where what is given differs from an example, whose lists of objects show some of those that are given."""
    if isinstance(shown, dict) and isinstance(given, dict) and shown.keys() == given.keys():
        return [line for name in shown for line in differences(shown[name], given[name], f"{place}.{name}")]
    if isinstance(shown, list) and any(isinstance(each, dict) for each in shown):
        missing = (each for each in shown if all(differences(each, other) for other in given))
        return [f"{place}: not given: {each}" for each in missing]
    return [] if shown == given else [f"{place}: {given} instead of {shown}"]


@pytest.mark.parametrize("arguments", EXAMPLES)
def test_a_command_gives_what_the_page_shows(lakehouse: Command, sold: Sold, arguments: str) -> None:
    done = lakehouse(*arguments.split(), **sold.variables)
    assert done.code == 0, done.err
    assert differences(steady(json.loads(EXAMPLES[arguments])), steady(json.loads(done.out))) == []
