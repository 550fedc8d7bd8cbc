"""The wheel, installed in an environment of its own: projects run from it, also on a Spark cluster of it."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
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
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    subprocess.run([UV, "build", "--sdist", "--quiet", "--out-dir", folder], cwd=CHECKOUT, check=True)
    return next(folder.glob("*.tar.gz"))


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


def files_of_the_package() -> set[str]:
    files = (CHECKOUT / "pulsar_lakehouse").rglob("*")
    return {str(file.relative_to(CHECKOUT)) for file in files if file.is_file() and "__pycache__" not in file.parts}


def test_the_wheel_has_every_file_of_one_package(wheel: Path) -> None:
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    scripts = {name for name in held if ".data/scripts/" in name}
    assert held - scripts == files_of_the_package()
    assert [Path(name).name for name in scripts] == ["spark-python"]


def test_the_source_distribution_has_each_file_once(source: Path) -> None:
    with tarfile.open(source) as archive:
        held = [name.partition("/")[2] for name in archive.getnames()]
    others = {"bin/spark-python", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore"}
    assert sorted(held) == sorted(files_of_the_package() | others)


def test_who_builds_it_elsewhere_gets_the_same_bits(wheel: Path, source: Path, tmp_path: Path) -> None:
    copy, built = tmp_path / "copy", tmp_path / "built"
    for name in ("pulsar_lakehouse", "bin"):
        shutil.copytree(CHECKOUT / name, copy / name, copy_function=shutil.copy)  # modified now
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(CHECKOUT / name, copy)
    for file in (copy / "pulsar_lakehouse").rglob("*"):
        file.chmod(file.stat().st_mode & 0o700)  # as with another umask
    subprocess.run([UV, "build", "--quiet", "--out-dir", built, copy], check=True)  # and the wheel from the source
    for mine in (wheel, source):
        assert (built / mine.name).read_bytes() == mine.read_bytes()


IN_A_PROJECT = """
import sys
from pathlib import Path

sys.path.insert(0, "")
from pulsar_lakehouse.testing import run_messages

sql = run_messages(Path(sys.argv[1]), stores=[{"key": "1", "payload": {"id": 1, "city": "Berlin"}}])
print(sql("SELECT city FROM silver.stores"))
import cli.own, dags.own, gold.own, jobs.own
print(cli.own.NAME, dags.own.NAME, gold.own.NAME, jobs.own.NAME)
"""
"""A script that uses the product and the project's own modules in one process."""


@pytest.mark.spark
@pytest.mark.long
def test_a_project_has_modules_of_any_name_beside_the_product(installed: Path, tmp_path: Path) -> None:
    run(installed, tmp_path, "init", "shops")
    project = tmp_path / "shops"
    for folder in ("cli", "dags", "gold", "jobs"):
        (project / folder).mkdir(exist_ok=True)
        (project / folder / "own.py").write_text(f'NAME = "own {folder}"\n')
    assert "silver.stores" in run(installed, project, "plan", "--quick")
    command = [str(installed / "bin" / "python"), "-c", IN_A_PROJECT, str(tmp_path / "home")]
    done = subprocess.run(command, env=environment_of_others(), cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["[('Berlin',)]", "own cli own dags own gold own jobs"]


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
