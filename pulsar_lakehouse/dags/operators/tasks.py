"""The steps of the pipeline as Airflow tasks. Each is one Spark application."""

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

from pulsar_lakehouse import cli
from pulsar_lakehouse.dags.operators import notes
from pulsar_lakehouse.dags.operators.lineage import parent_run
from pulsar_lakehouse.dags.operators.plugin import REPORT
from pulsar_lakehouse.errors import BusyError, LakehouseError, PermanentError
from pulsar_lakehouse.passed_settings import handed_over
from pulsar_lakehouse.settings import Settings, load_settings
from pulsar_lakehouse.spark.session import for_short_run, properties_file, spark_conf, submit_environment

COMMAND = Path(cli.__file__).with_name("__main__.py")
SUBMIT = Path(sys.prefix) / "bin" / "spark-submit"
CONNECTION = "lakehouse"
GOLD_POOL = "gold"
"""The pool of tasks that write gold or need it unchanged. It has one slot, as each of them holds gold's lease."""


def alert(context: Context) -> None:
    """Send an alert about a failed task."""
    task = context["ti"]
    lines = str(context.get("exception")).splitlines() or ["no reason given"]
    reason = next((line for line in lines if line.startswith("lakehouse: ")), lines[0])
    _tell(f"{task.dag_id}.{task.task_id} failed in {task.run_id}: {reason}\n{task.log_url}")


def alert_of_timeout(context: Context) -> None:
    """Send an alert about a run that timed out: its unfinished tasks are skipped, so none of them sends one."""
    if context["reason"] == "timed_out":
        dag = context["dag"]
        _tell(f"{dag.dag_id} timed out in {context['run_id']}: it took more than {dag.dagrun_timeout}")


def _tell(text: str) -> None:
    """POST the text to `airflow.alert_url`, if it is set. Raises LakehouseError if that fails."""
    url = load_settings().airflow.alert_url
    if url is not None:
        try:
            requests.post(url.get_secret_value(), json={"text": text}, timeout=10).raise_for_status()
        except requests.RequestException as error:  # its text has the secret address
            raise LakehouseError(f"the alert could not be sent to airflow.alert_url: {type(error).__name__}") from None


DEFAULTS: dict[str, Any] = {
    "owner": "lakehouse",
    "retries": 5,
    "retry_delay": timedelta(seconds=10),
    "execution_timeout": timedelta(minutes=30),
    "on_failure_callback": alert,
}
"""The arguments that all tasks share."""


def asset(table: str) -> Asset:
    return Asset(table, group=table.partition(".")[0])


def only_for_param(name: str, *values: str) -> Callable[[Context], None]:
    """A `pre_execute` function: skips the task unless the run's parameter `name` has one of these values."""

    def check(context: Context) -> None:
        if (given := context["params"][name]) not in values:
            raise AirflowSkipException(f"{name} is {given}")

    return check


def has_news(dag_run: DagRunProtocol) -> bool:
    """Whether a run has anything to do. A run that somebody asked for always has."""
    from pulsar_lakehouse.jobs.new_data import Kind, Reason, reasons

    is_requested = dag_run.run_type not in ("scheduled", "asset_triggered")
    requested = Reason(Kind.REQUESTED, "somebody has asked for this run")
    reason = requested if is_requested else next(reasons(load_settings()), None)
    line = f"{reason.kind.capitalize()}: {reason.line}" if reason else "Nothing new: the rest of this run is skipped"
    logging.getLogger(__name__).info(line)
    return reason is not None


class Step(SparkSubmitOperator):
    """A `lakehouse` command, run by spark-submit. Arguments that render to an empty text are left out.

    The tables that it `writes` are assets, whose events carry rows, version and lag. While another process writes its
    tables, a step that `yields` is skipped; any other step fails, and its log names the process. Permanent errors are
    not retried.
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
        from pulsar_lakehouse.jobs.new_data import is_little

        settings = load_settings()
        os.environ[f"AIRFLOW_CONN_{CONNECTION.upper()}"] = json.dumps(
            {"conn_type": "spark", "host": settings.spark.master}
        )
        self.application_args = [argument for argument in self.application_args or () if argument]
        if "--dry-run" in self.application_args:
            self.outlets = []
        if is_little(settings):
            settings = for_short_run(settings)
        properties = properties_file(spark_conf(settings, keep_classes=False))
        with properties as self.properties_file, handed_over() as handed, NamedTemporaryFile("r") as note:
            # Airflow does the retries, so that its pages show them.
            of_step = {"LAKEHOUSE_DECLARATIONS": str(settings.declarations), "LAKEHOUSE_HOME": str(settings.home)}
            of_step |= {"LAKEHOUSE_RUN__RETRIES": "0", "LAKEHOUSE_RUN__NOTE_FILE": note.name, "COLUMNS": "120"}
            of_step["PYTHONSAFEPATH"] = "1"  # else the modules beside the command hide packages of the same name
            self.env_vars = {**submit_environment(settings), **handed, **of_step, **parent_run(context)}
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
            if self.yields and f"Error code is: {BusyError.exit_code}." in str(error):
                raise AirflowSkipException("another process is writing these tables: left for the next run") from error
            if f"Error code is: {PermanentError.exit_code}." in str(error):
                raise AirflowFailException(str(error)) from error
            raise

    def _tell_assets(self, settings: Settings, context: Context) -> None:
        from pulsar_lakehouse.inspection.table_status import table_statuses

        # Reads all tables, as the lag of one is counted in commits of others.
        for status in table_statuses(settings) if self.outlets else ():
            if status.name in self.writes:
                event = context["outlet_events"][asset(status.name)]
                event.extra = {"rows": status.rows, "version": status.version, "lag": status.lag}
                self.log.info("%s: %s", status.name, event.extra)


class ReportLink(BaseOperatorLink):
    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{REPORT}/"


class Run(Step):
    """A step that writes the quality report, among other things, and links to it."""

    operator_extra_links = (ReportLink(),)
