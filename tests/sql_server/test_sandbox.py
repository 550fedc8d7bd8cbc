import subprocess
import sys
from pathlib import Path

import pytest

from pulsar_lakehouse.sql_server.sandbox import landlock_version

CONFINED = """
import subprocess, sys
from pathlib import Path
from pulsar_lakehouse.sql_server.sandbox import confine
granted, secret, temporary = map(Path, sys.argv[1:])
python = [Path(sys.prefix), Path(sys.base_prefix), Path("/usr"), Path("/lib"), Path("/lib64"), Path("/bin")]
assert confine(reads=[*python, granted, granted / "nothing"], writes=[temporary])
def attempt(path, mode):
    try:
        return path.open(mode).close()
    except PermissionError as error:
        print(error.strerror, mode, path.name)
attempt(granted / "file", "r")
attempt(granted / "file", "a")
attempt(granted / "new", "x")
attempt(secret, "r")
attempt(temporary / "new", "x")
print(subprocess.run(["cat", secret], capture_output=True, text=True).stderr.rpartition(": ")[2], end="")
"""


@pytest.mark.skipif(landlock_version() < 1, reason="this system has no Landlock")
def test_what_is_not_granted_is_denied_also_to_what_is_started(tmp_path: Path) -> None:
    for name in ("granted", "temporary"):
        (tmp_path / name).mkdir()
    for name in ("granted/file", "secret"):
        (tmp_path / name).write_text("text")
    paths = [tmp_path / name for name in ("granted", "secret", "temporary")]
    done = subprocess.run([sys.executable, "-c", CONFINED, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "Permission denied a file",
        "Permission denied x new",
        "Permission denied r secret",
        "Permission denied",
    ]
