"""The command as Airflow runs it."""

import subprocess
import sys
from pathlib import Path


def test_no_file_beside_it_hides_a_package(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError")
    command = [sys.executable, "-P", "-m", "pulsar_lakehouse.cli", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
