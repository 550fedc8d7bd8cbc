import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.cli import commands
from pulsar_lakehouse.cli.init import STARTER
from pulsar_lakehouse.jobs.snapshots import create
from pulsar_lakehouse.jobs.steps import reconcile_all, run_all
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.records import keep_reconciliations
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark import session
from pulsar_lakehouse.tables.lake import Lake
from tests.cli.outcome import Command, Outcome
from tests.cli.sold import SALES, STORES, Sold, send
from tests.lake import environment, own_topics


@pytest.fixture
def lakehouse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Command]:
    """The `lakehouse` command in this process, in an empty folder, with its own home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "stop_spark", lambda **_: None)  # all tests share the session, and this process
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(tmp_path / "home"))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def run(*arguments: str, **environment: str) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["lakehouse", *arguments])
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as end:
                commands.main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.out + shown.err
        return Outcome(int(end.value.code or 0), shown.out, shown.err)

    yield run
    logging.disable(logging.NOTSET)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, tmp_path: Path) -> Settings:
    """A home with empty topics in the broker."""
    return own_topics(settings, endpoint, tmp_path)


@pytest.fixture(scope="session")
def sold(spark: SparkSession, settings: Settings, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Sold:
    """The project that `lakehouse init` makes, after a run with a sale of each kind, and a snapshot."""
    declared = settings.model_copy(update={"declarations": STARTER / "stores" / "declarations"})
    pipeline = pipeline_of(declared)
    project = own_topics(declared, endpoint, tmp_path_factory.mktemp("sold"), pipeline.topics)
    ids = {key: send(project, endpoint, "stores", store, key) for key, store in STORES.items()}
    ids |= {kind: send(project, endpoint, "sales", sale) for kind, sale in SALES.items()}
    lake = Lake(spark, project)
    list(run_all(lake))
    keep_reconciliations(project, reconcile_all(lake))
    create(lake, pipeline, "before-upgrade")
    variables = environment(project, LAKEHOUSE_DECLARATIONS=str(project.declarations))
    return Sold(variables, project, endpoint, ids)
