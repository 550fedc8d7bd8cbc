"""The file that spark-submit runs, from wherever it is reached."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_command_runs_as_a_script_through_a_link(tmp_path: Path) -> None:
    """As Airflow runs it, the modules beside it do not hide the package `airflow`."""
    link = tmp_path / "link"
    link.symlink_to(ROOT)
    command = [sys.executable, str(link / "pulsar_lakehouse" / "cli" / "__main__.py"), "--help"]
    done = subprocess.run(command, env=os.environ | {"PYTHONSAFEPATH": "1"}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
