"""What can be left of a few files."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.failing_writes.power_cut import make_disk, names_in
from tests.failing_writes.shim import NO_COMPILER, Shim, has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason=NO_COMPILER)

BEGIN = """
import os
def write(name, size, sync=False):
    with open(name, "wb", buffering=0) as file:
        file.write(b"x" * size)
        if sync:
            os.fsync(file.fileno())
def sync(folder):
    at = os.open(folder, os.O_RDONLY)
    os.fsync(at)
"""


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("write('a', 600)", ["", "a 0", "a 512", "a 600", "a 600 zeros 0", "a 600 zeros 512"]),
        ("write('a', 600, sync=True)", ["", "a 600"]),
        ("write('a', 600, sync=True); sync('.')", ["a 600"]),
        ("write('a', 9, sync=True); sync('.'); os.rename('a', 'b'); os.unlink('b')", ["", "a 9", "b 9"]),
        ("write('a', 9, sync=True); write('b', 9, sync=True); sync('.'); os.rename('a', 'b')", ["a 9, b 9", "b 9"]),
        ("os.mkdir('f'); write('f/a', 9, sync=True); sync('f')", ["", "f/a 9"]),
        ("os.mkdir('f'); write('f/a', 9, sync=True); sync('f'); sync('.')", ["f/a 9"]),
        ("write('a', 9, sync=True); os.link('a', 'b'); os.unlink('a')", ["", "a 9", "a 9, b 9", "b 9"]),
        ("import ctypes; write('a', 9); ctypes.CDLL(None).syncfs(os.open('.', os.O_RDONLY))", ["a 9"]),
    ],
)
def test_what_can_be_left(tmp_path: Path, code: str, left: list[str]) -> None:
    home = tmp_path / "under" / "home"
    home.mkdir(parents=True)
    shim, before = Shim(tmp_path, tmp_path / "under"), names_in(home)
    with shim.failing(notes=True):
        command = [sys.executable, "-c", BEGIN + code]
        subprocess.run(command, env=os.environ | shim.environment, cwd=home, check=True)
    found = set()
    for seed in range(100):
        made = tmp_path / f"{seed}"
        make_disk(shim, home, before, made, random.Random(seed))
        files = sorted(path for path in made.rglob("*") if path.is_file())
        found.add(", ".join(f"{path.relative_to(made)} {_told(path.read_bytes())}" for path in files))
    assert sorted(found) == left


def _told(content: bytes) -> str:
    kept = len(content.rstrip(b"\0"))
    return f"{len(content)} zeros {kept}" if kept < len(content) else f"{len(content)}"
