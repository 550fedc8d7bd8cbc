"""The steps of the pipeline as Airflow tasks. Each is a `lakehouse` command in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from tempfile import NamedTemporaryFile
from typing import Any

import requests
from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, Context, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowSkipException

from pulsar_lakehouse.dags.operators import notes
from pulsar_lakehouse.dags.operators.lineage import parent_run
from pulsar_lakehouse.dags.operators.plugin import REPORT
from pulsar_lakehouse.errors import NOTHING_NEW, BusyError, LakehouseError, PermanentError
from pulsar_lakehouse.settings import load_settings

COMMAND = (sys.executable, "-u", "-P", "-m", "pulsar_lakehouse.cli")
"""`lakehouse` with this Python. Its lines come as they are printed, and no file of the folder hides a package."""
GOLD_POOL = "gold"
"""The pool of tasks that write gold or need it unchanged. It has one slot, as each of them holds gold's lease."""


class Failed(SystemExit):
    """A task failed, and its log says why. Of other exceptions, Airflow would add a stack trace to the log."""

    def __init__(self, why: str, code: int = 1) -> None:
        super().__init__(code)
        self.why = why

    def __str__(self) -> str:
        return self.why


class FailedForGood(Failed):
    """Another try would fail in the same way."""


def failure(why: str, code: int) -> Failed:
    """The exception for a command that ended with this exit code."""
    return (FailedForGood if code == PermanentError.exit_code else Failed)(why, code)


def alert(context: Context) -> None:
    """Send an alert about a failed task."""
    task = context["ti"]
    reason = next(iter(str(context.get("exception") or "").splitlines()), "no reason given")
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
    "retry_policy": ExceptionRetryPolicy(rules=[RetryRule(exception=FailedForGood, action=RetryAction.FAIL)]),
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


def is_requested(context: Context) -> bool:
    """Whether somebody has started the run or cleared a task of it, or the task is tried again: it must do its work."""
    run = context["dag_run"]
    of_itself = run.run_type in ("scheduled", "asset_triggered") and not run.clear_number
    return not of_itself or context["ti"].try_number > 1


class Step(BaseOperator):
    """A `lakehouse` command. Arguments that render to an empty text are left out.

    The tables that it `reads` and `writes` are assets, whose events carry rows, version and lag. It is skipped if it
    has nothing new to do, unless somebody asked for it. While another process writes its tables, a step that `yields`
    is skipped; any other step fails, and its log names the process. Permanent errors are not retried.
    """

    template_fields = ("command",)

    def __init__(
        self,
        *,
        command: Sequence[str],
        reads: Sequence[str | Asset] = (),
        writes: Sequence[str] = (),
        yields: bool = False,
        **kwargs: Any,
    ) -> None:
        inlets = [each if isinstance(each, Asset) else asset(each) for each in reads]
        super().__init__(inlets=inlets, outlets=[asset(table) for table in writes], **kwargs)
        self.command, self.yields = list(command), yields
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> None:
        arguments = [argument for argument in self.command if argument]
        if "--dry-run" in arguments:
            self.outlets = []
        with NamedTemporaryFile("r", suffix=".jsonl") as outcome:
            try:
                code, why = self._run(arguments, _environment(outcome.name, context))
            finally:
                self._tell_outcome([json.loads(line) for line in outcome], context)
        if code == NOTHING_NEW:
            raise AirflowSkipException("nothing new")
        if code == BusyError.exit_code and self.yields:
            raise AirflowSkipException("another process is writing these tables: left for the next run")
        if code:
            raise failure(why, code)

    def _run(self, arguments: Sequence[str], environment: dict[str, str]) -> tuple[int, str]:
        """Run the command, with its output in the log; returns its exit code, and why it failed."""
        why = ""
        with subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
        ) as self._process:
            try:
                for line in self._process.stdout or ():
                    is_cause = line.startswith("lakehouse: ")
                    (self.log.error if is_cause else self.log.info)(line.rstrip())
                    why = why or line.strip() if is_cause else why
            except BaseException:  # such as a timeout
                self.on_kill()
                raise
        code = self._process.returncode
        if code and not why:
            why = f"the command was ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return code, why

    def on_kill(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def _tell_outcome(self, told: Sequence[dict[str, Any]], context: Context) -> None:
        """Keep what the command has noted for the note of the run, and what its tables hold as events of the assets."""
        said = [each["note"] for each in told if "note" in each]
        tables = {each["table"]: each for each in told if "table" in each}
        held = [(asset, tables[asset.name]) for asset in self.outlets if asset.name in tables]
        for asset, table in held:
            extra = {name: table[name] for name in ("rows", "version", "lag")}
            context["outlet_events"][asset].extra = extra
        lines = {notes.OF_RUN: said, notes.OF_TASK: [*said, *(notes.line_of(table) for _, table in held)]}
        for key, each in lines.items():
            if each:
                context["ti"].xcom_push(key=key, value="\n".join(each))


def _environment(outcome: str, context: Context) -> dict[str, str]:
    settings = load_settings()
    return {
        **os.environ,
        "LAKEHOUSE_DECLARATIONS": str(settings.declarations),
        "LAKEHOUSE_HOME": str(settings.home),
        "LAKEHOUSE_RUN__OUTCOME_FILE": outcome,
        "LAKEHOUSE_RUN__ONLY_NEW": str(not is_requested(context)),
        "LAKEHOUSE_RUN__RETRIES": "0",  # Airflow does the retries, so that its pages show them
        "COLUMNS": "120",
        **parent_run(context),
    }


class ReportLink(BaseOperatorLink):
    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:
        return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{REPORT}/"


class Validate(Step):
    """A step that writes the quality report, and links to it."""

    operator_extra_links = (ReportLink(),)
