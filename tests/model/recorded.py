"""What a real run has left, as steps of the model: files of checkpoints and commits, in the order of their times."""

import json
from collections.abc import Iterator
from pathlib import Path

from pulsar_lakehouse.settings import Settings
from tests.model.world import GONE

STEPS = ("writes offsets", "does plan", "commits to bronze", "does add", "does wait", "does end waiting")
LAST = ("writes commits", "does commits")
"""Of files with the same time, as the system knows only milliseconds of it, these come last."""


def shown(does: str) -> str | None:
    """What files show of a step of the model: not which process has done it."""
    seen = does.removeprefix(f"{GONE}'s Spark ").removeprefix("A's Spark ").removeprefix("A ")
    return seen if seen in (*STEPS, *LAST) else None


def steps_of_landing(settings: Settings, table: str) -> list[str]:
    """The steps that landed a table."""
    return _in_order([*_of_checkpoint(settings, table, "writes offsets", "writes commits"), *_commits(settings, table)])


def steps_of_enrichment(settings: Settings, gold: str, waiting: str) -> list[str]:
    """The steps that enriched facts."""
    files = [*_of_checkpoint(settings, gold, "does plan", "does commits")]
    return _in_order([*files, *_commits(settings, gold), *_commits(settings, waiting)])


def _in_order(found: list[tuple[int, str]]) -> list[str]:
    return [does for _, does in sorted(found, key=lambda each: (each[0], (*STEPS, *LAST).index(each[1])))]


def _of_checkpoint(settings: Settings, stream: str, planned: str, done: str) -> Iterator[tuple[int, str]]:
    for log, does in (("offsets", planned), ("commits", done)):
        for file in Path(settings.checkpoint_path(stream), log).glob("[0-9]*"):
            yield file.stat().st_mtime_ns, does


def _commits(settings: Settings, table: str) -> Iterator[tuple[int, str]]:
    """The commits that change rows."""
    for file in Path(settings.table_path(table), "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        changed = {name for action in actions for name, said in action.items() if dict(said).get("dataChange")}
        if changed:
            layer = table.partition(".")[0]
            does = {"bronze": "commits to bronze", "gold": "does add", "quarantine": "does wait"}[layer]
            yield file.stat().st_mtime_ns, "does end waiting" if does == "does wait" and "remove" in changed else does
