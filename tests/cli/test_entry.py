"""The file that spark-submit runs, from wherever it is reached."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_command_runs_as_a_script_through_a_link(tmp_path: Path) -> None:
    """Its modules do not hide the packages `airflow` and `demo`, though Python looks in its folder first."""
    link = tmp_path / "link"
    link.symlink_to(ROOT)
    done = subprocess.run([sys.executable, link / "cli" / "__main__.py", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
