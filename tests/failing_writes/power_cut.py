"""Makes what a disk can hold after a loss of power, from the calls that a shim has noted.

Files: what was written since a file was synced is there, or missing from some sector on, or zeros from there on.
Folders: of what was made, renamed and removed in a folder since it was synced, only the first changes are there, some,
all or none. A call is done at the moment when it returns.
"""

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pulsar_lakehouse.power_cuts import BOOT
from tests.failing_writes.shim import Shim

SECTOR = 512
FOLDER = -1
"""Stands for the number of a file."""
Names = Mapping[Path, int]
"""The numbers of the files in a home."""


class Call(NamedTuple):
    moment: int
    name: str
    file: int
    size: int
    path: Path
    old: Path


def names_in(home: Path) -> dict[Path, int]:
    return {home: FOLDER} | {path: FOLDER if path.is_dir() else path.stat().st_ino for path in home.rglob("*")}


def make_disk(
    shim: Shim, home: Path, before: Names, made: Path, draw: random.Random, *, done: int | None = None
) -> None:
    """Make the home anew as it can be after a loss of power. All that there was `before` was on the disk.

    With `done`, the power was lost after so many of the calls.
    """
    calls = sorted(_calls(shim, home))[:done]
    held = {number: path for path, number in names_in(home).items()}
    held |= {int(path.name): path for path in shim.kept.iterdir()}
    for path, number in _left(calls, before, draw).items():
        target = made / path.relative_to(home)
        if number == FOLDER:
            target.mkdir(parents=True, exist_ok=True)
        else:
            of_file = [call for call in calls if call.file == number or call.name == "sync all"]
            target.write_bytes(_content(held[number].read_bytes(), of_file, draw, was_there=number in before.values()))
    (made / BOOT).unlink(missing_ok=True)  # the machine has another start


def _calls(shim: Shim, home: Path) -> Iterator[Call]:
    for line in shim.notes.read_text().splitlines():
        moment, name, file, size, path, old = line.split("\t")
        if name == "sync all" or Path(path).is_relative_to(home):
            yield Call(int(moment), name, int(file), int(size), Path(path), Path(old))


def _left(calls: list[Call], before: Names, draw: random.Random) -> dict[Path, int]:
    """The files and folders that are left."""
    synced, all_synced = defaultdict[Path, int](int), 0
    for call in calls:
        if call.name == "sync all":
            all_synced = call.moment
        elif call.name == "sync":
            synced[call.path] = call.moment
    changes = [call for call in calls if call.name in ("open", "mkdir", "rename", "link", "unlink")]
    unsynced = defaultdict[Path, list[Call]](list)
    for call in changes:
        if call.moment > max(synced[call.path.parent], all_synced):
            unsynced[call.path.parent].append(call)
    lost = {
        call for each in unsynced.values() for call in each[draw.choice((0, len(each), draw.randint(0, len(each)))) :]
    }
    names = dict(before)
    for call in changes:
        if call not in lost and names.get(call.path.parent) == FOLDER:
            _change(names, call)
    return names


def _change(names: dict[Path, int], call: Call) -> None:
    match call.name:
        case "open" | "link":
            names[call.path] = call.file
        case "mkdir":
            names[call.path] = FOLDER
        case "unlink":
            for path in [path for path in names if path.is_relative_to(call.path)]:
                del names[path]
        case "rename" if call.old in names:
            for path in [path for path in names if path.is_relative_to(call.old)]:
                names[call.path / path.relative_to(call.old)] = names.pop(path)


def _content(whole: bytes, calls: list[Call], draw: random.Random, *, was_there: bool) -> bytes:
    """What is left of a file, given its calls and those that sync all files."""
    synced = max((call.moment for call in calls if call.name in ("sync", "sync all")), default=0)
    written = [call for call in calls if call.name in ("open", "write")]
    whole = whole[: written[-1].size] if written else whole
    if all(call.moment < synced for call in written):
        return whole
    on_disk = max((call.size for call in written if call.moment < synced), default=0)
    if was_there and all(call.name == "open" and call.size == len(whole) for call in written):
        return whole
    sectors = range(on_disk // SECTOR, len(whole) // SECTOR + 1)
    at = max(on_disk, draw.choice((sectors[0], sectors[-1], draw.choice(sectors))) * SECTOR)
    return draw.choice((whole, whole[:at], whole[:at] + bytes(len(whole) - at)))
