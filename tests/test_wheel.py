"""The wheel, installed in an environment of its own: a project runs from it on a Spark cluster of that environment."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from pulsar_lakehouse.settings import environment_of_others
from pulsar_lakehouse.spark.session import SHORT_RUN
from tests.cluster import Cluster

CHECKOUT = Path(__file__).parent.parent
UV = shutil.which("uv") or CHECKOUT / ".tools" / "bin" / "uv"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([UV, "build", "--wheel", "--quiet", "--out-dir", folder], cwd=CHECKOUT, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """An environment with the wheel and the locked packages that it needs, and nothing of the checkout."""
    folder = wheel.parent / "installed"
    given = os.environ | {"UV_PROJECT_ENVIRONMENT": str(folder)}
    sync = [UV, "sync", "--quiet", "--locked", "--no-dev", "--no-install-project", "--python", sys.executable]
    subprocess.run(sync, env=given, cwd=CHECKOUT, check=True)
    subprocess.run([UV, "pip", "install", "--quiet", "--no-deps", "--python", folder, wheel], check=True)
    return folder


@pytest.fixture
def project(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """A project that the installed command has made, in an empty folder."""
    run(installed, tmp_path, "init", "shops")
    yield tmp_path / "shops"
    run(installed, tmp_path / "shops", "down")


def run(installed: Path, folder: Path, *command: str, **more: str) -> str:
    """What a command of the environment prints, which must succeed."""
    given = environment_of_others() | more
    done = subprocess.run([installed / "bin" / "lakehouse", *command], env=given, cwd=folder, capture_output=True)
    assert done.returncode == 0, f"{command}: {done.stdout.decode()}{done.stderr.decode()}"
    return done.stdout.decode()


def test_the_wheel_has_every_file_of_its_packages(wheel: Path) -> None:
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name and ".data/" not in name}
    packages = {name.partition("/")[0] for name in held}
    files = {
        str(file.relative_to(CHECKOUT))
        for package in packages
        for file in (CHECKOUT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert held == files


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.broker
def test_a_project_runs_from_the_wheel_on_a_cluster(installed: Path, project: Path, tmp_path: Path) -> None:
    for command in (
        "plan",
        "up",
        "topics create",
        "send stores messages/stores.jsonl",
        "send sales messages/sales.jsonl",
    ):
        run(installed, project, *command.split())
    cluster = Cluster(tmp_path / "cluster", environment=installed)
    on_it = {"LAKEHOUSE_SPARK__MASTER": cluster.master, "LAKEHOUSE_SPARK__CONF": json.dumps(SHORT_RUN)}
    try:
        cluster.start()
        assert run(installed, project, "run", **on_it).count("holds") == 2
        run(installed, project, "refresh", **on_it)
    finally:
        cluster.kill()
    assert any("Running task" in log for log in cluster.executor_logs())
    assert run(installed, project, "sql", "--csv", "SELECT * FROM gold.revenue_by_city ORDER BY city") == (
        "city,sales,revenue\nBerlin,2,12.50\nPorto,1,19.99\n"
    )
