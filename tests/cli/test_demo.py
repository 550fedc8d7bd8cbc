"""`make demo` as users run it, also twice at once, or with Ctrl-C: nothing breaks, and no process is left."""

import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import psutil
import pytest

from pulsar_lakehouse.cli.demo import demo_settings
from pulsar_lakehouse.domains import DOMAINS, workload_of
from pulsar_lakehouse.jvm.class_archives import FOLDER
from pulsar_lakehouse.jvm.java import java_home
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import Settings
from tests.jobs.test_crashes import LAKEHOUSE, commit, ended, wait_until
from tests.lake import own_home

Demo = subprocess.Popen[str]

pytestmark = pytest.mark.long


def start(settings: Settings, domain: str = "shop") -> Demo:
    """A demo that Ctrl-C reaches, even if the tests run in the background, where a shell makes them ignore it."""
    return subprocess.Popen(
        [LAKEHOUSE, "demo", "--domain", domain, "--size", "1000"],
        env={**os.environ, "LAKEHOUSE_HOME": str(settings.home)},
        cwd=settings.home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def left_of(settings: Settings) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["environ", "cmdline"]):
        told = (process.info["environ"] or {}).get("LAKEHOUSE_HOME"), *(process.info["cmdline"] or ())
        if process.pid != os.getpid() and any(str(settings.home) in str(part) for part in told):
            found.append(process)
    return found


def kept_for_the_broker() -> set[str]:
    """The broker's class archive that an earlier demo has kept, if any."""
    return {str(archive) for archive in FOLDER.glob("broker-*.jsa")}


def open_to_others(folder: Path) -> list[Path]:
    """Files with permissions for other users. RocksDB's folders have some too, but other users can't reach them."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]


def began(settings: Settings, moment: str) -> Path:
    """The commit of version 1 of a table. Version 0 is there before its messages."""
    return commit(demo_settings(settings), moment, 1)


def titles_missing(told: str, domain: str) -> list[str]:
    """The titles of the domain's queries that were not told."""
    files = (DOMAINS[domain] / "queries").glob("*.sql")
    titles = [path.read_text().partition("\n")[0].removeprefix("-- ") for path in files]
    assert titles
    return [title for title in titles if title.split(",")[0] not in " ".join(told.split())]


@pytest.mark.spark
@pytest.mark.broker
def test_the_whole_demo_while_a_second_one_is_refused(settings: Settings, tmp_path: Path) -> None:
    own = own_home(settings, tmp_path)
    with ended(start(own)) as demo:
        wait_until(began(own, "bronze.orders").exists)
        with ended(start(own)) as second:
            refused, _ = second.communicate(timeout=60)
        assert (second.returncode, f"demo is being written by pid {demo.pid} " in refused) == (75, True)
        told, _ = demo.communicate(timeout=600)
    assert demo.returncode == 0, told
    assert told.count("holds") == 3
    assert titles_missing(told, "shop") == []
    assert "came back by themselves" in told
    assert open_to_others(demo_settings(own).home) == []
    # A JVM that comes without a class archive, as in some packages, keeps none.
    assert kept_for_the_broker() or not (java_home() / "lib" / "server" / "classes.jsa").exists()
    wait_until(lambda: left_of(own) == [], seconds=10, poll=0.1)


@pytest.mark.parametrize("domain", sorted({*DOMAINS} - {"shop"}))
@pytest.mark.spark
@pytest.mark.broker
def test_the_demo_of_each_other_domain(settings: Settings, tmp_path: Path, domain: str) -> None:
    own = own_home(settings, tmp_path)
    with ended(start(own, domain)) as demo:
        told, _ = demo.communicate(timeout=600)
    assert demo.returncode == 0, told
    pipeline, workload = pipeline_of(demo_settings(own, domain)), workload_of(domain).of(1_000)
    reconciled = {topic.name for topic in (*pipeline.landed, *pipeline.with_kinds)}
    assert told.count("holds") == len(reconciled) + len(list(workload.expected()))
    assert titles_missing(told, domain) == []


@pytest.mark.parametrize("moment", ["bronze.orders", "gold.enriched_orders"])
@pytest.mark.spark
@pytest.mark.broker
def test_ctrl_c_ends_all_of_it(settings: Settings, tmp_path: Path, moment: str) -> None:
    own = own_home(settings, tmp_path)
    with ended(start(own)) as demo:
        wait_until(began(own, moment).exists)
        [broker] = [
            process for process in left_of(own) if "org.apache.pulsar.PulsarStandaloneStarter" in process.cmdline()
        ]
        assert kept_for_the_broker() <= {mapped.path for mapped in broker.memory_maps()}
        os.killpg(demo.pid, signal.SIGINT)
        told, _ = demo.communicate(timeout=60)
    assert (demo.returncode, "Traceback" in told) == (130, False)
    wait_until(lambda: left_of(own) == [], seconds=10, poll=0.1)
