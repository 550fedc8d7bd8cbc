"""The steps of the pipeline as tasks of Airflow, each of which is one Spark application."""

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import requests
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, Context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.types import DagRunProtocol

import cli
from dags.operators import notes
from dags.operators.plugin import REPORT
from lakehouse.errors import BusyError, LakehouseError, PermanentError
from lakehouse.handover import handed_over
from lakehouse.settings import Settings, load_settings
from lakehouse.spark.session import properties_file, spark_conf, submit_environment

COMMAND = Path(cli.__file__).with_name("__main__.py")
SUBMIT = Path(sys.prefix) / "bin" / "spark-submit"
CONNECTION = "lakehouse"
GOLD_POOL = "gold"
"""Tasks that write gold, or need it to stand still: as each of them holds its lease, the pool has one slot."""


def alert(context: Context) -> None:
    """Tell of a failed task."""
    task = context["ti"]
    lines = str(context.get("exception")).splitlines() or ["no reason given"]
    reason = next((line for line in lines if line.startswith("lakehouse: ")), lines[0])
    _tell(f"{task.dag_id}.{task.task_id} failed in {task.run_id}: {reason}\n{task.log_url}")


def alert_of_timeout(context: Context) -> None:
    """Tell of a run that was ended as it took too long: what that cut off is skipped, so that no task tells of it."""
    if context["reason"] == "timed_out":
        dag = context["dag"]
        _tell(f"{dag.dag_id} was ended in {context['run_id']}: it took more than {dag.dagrun_timeout}")


def _tell(text: str) -> None:
    """Tell it where `airflow.alert_url` says."""
    url = load_settings().airflow.alert_url
    if url is not None:
        try:
            requests.post(url.get_secret_value(), json={"text": text}, timeout=10).raise_for_status()
        except requests.RequestException as error:  # whose text has the address
            raise LakehouseError(f"airflow.alert_url could not be told: {type(error).__name__}") from None


DEFAULTS: dict[str, Any] = {
    "owner": "lakehouse",
    "retries": 5,
    "retry_delay": timedelta(seconds=10),
    "execution_timeout": timedelta(minutes=30),
    "on_failure_callback": alert,
}
"""What all tasks have in common."""


def asset(table: str) -> Asset:
    return Asset(table, group=table.partition(".")[0])


def only_for_param(name: str, *values: str) -> Callable[[Context], None]:
    """To be called before a task: it is skipped if the run's parameter `name` has none of these values."""

    def check(context: Context) -> None:
        if (given := context["params"][name]) not in values:
            raise AirflowSkipException(f"{name} is {given}")

    return check


def has_news(dag_run: DagRunProtocol) -> bool:
    """Whether there is anything for a run to do. One that somebody has asked for does all."""
    from jobs.news import news

    if dag_run.run_type not in ("scheduled", "asset_triggered"):
        return True
    found = news(load_settings())
    logging.getLogger(__name__).info(found or "Nothing new: the rest of this run is left out")
    return bool(found)


def failed_as(error: AirflowException, kind: type[LakehouseError]) -> bool:
    """Whether a command has failed with the exit code of such an error."""
    return f"Error code is: {kind.exit_code}." in str(error)


class Step(SparkSubmitOperator):
    """A `lakehouse` command, run by spark-submit; an argument that is rendered as nothing is left out.

    The tables that it `writes` are assets, whose events carry their rows, version and lag. A step that `yields` is
    skipped while another process writes its tables; any other fails, and its log says who does. What another try would
    meet again is not tried again.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        yields: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            application=str(COMMAND),
            application_args=list(command),
            name=f"lakehouse {command[0]}",
            spark_binary=str(SUBMIT),
            conn_id=CONNECTION,
            inlets=[asset(table) for table in reads],
            outlets=[asset(table) for table in writes],
            **kwargs,
        )
        self.writes, self.yields = writes, yields

    def execute(self, context: Context) -> None:
        settings = load_settings()
        os.environ[f"AIRFLOW_CONN_{CONNECTION.upper()}"] = json.dumps(
            {"conn_type": "spark", "host": settings.spark.master}
        )
        self.application_args = [argument for argument in self.application_args or () if argument]
        if "--dry-run" in self.application_args:
            self.outlets = []
        properties = properties_file(spark_conf(settings, keep_classes=False))
        with properties as self.properties_file, handed_over() as handed, NamedTemporaryFile("r") as note:
            # Airflow itself tries again, for all to see.
            of_step = {"LAKEHOUSE_RUN__RETRIES": "0", "LAKEHOUSE_RUN__NOTE_FILE": note.name, "COLUMNS": "120"}
            self.env_vars = {**submit_environment(settings), **handed, **of_step}
            try:
                self._submit(context)
            finally:
                if said := note.read().strip():
                    context["ti"].xcom_push(key=notes.KEY, value=said)
        self._tell_assets(settings, context)

    def _submit(self, context: Context) -> None:
        try:
            super().execute(context)
        except AirflowException as error:
            if self.yields and failed_as(error, BusyError):
                raise AirflowSkipException("another process writes these tables: left for the next time") from error
            if failed_as(error, PermanentError):
                raise AirflowFailException(str(error)) from error
            raise

    def _tell_assets(self, settings: Settings, context: Context) -> None:
        from lakehouse.delta.status import table_statuses

        # All tables, as the lag of one is counted in commits of others.
        for status in table_statuses(settings) if self.outlets else ():
            if status.name in self.writes:
                event = context["outlet_events"][asset(status.name)]
                event.extra = {"rows": status.rows, "version": status.version, "lag": status.lag}
                self.log.info("%s: %s", status.name, event.extra)


class ReportLink(BaseOperatorLink):
    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{REPORT}/"


class Validation(Step):
    """A step that writes the report on quality, and links to it. It is tried again only if its tables are taken."""

    operator_extra_links = (ReportLink(),)

    def _submit(self, context: Context) -> None:
        try:
            super()._submit(context)
        except AirflowException as error:
            if failed_as(error, BusyError):
                raise
            raise AirflowFailException(str(error)) from error
