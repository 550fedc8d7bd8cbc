"""Lets a step fail at some of its calls, does it again, and compares the tables with those of a run without failures.

All of it happens in one process with one Spark. Some steps also fail as commands.
"""

import os
import random
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from pulsar_lakehouse.errors import LakehouseError
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.power_cuts import remove_torn_commits
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.spark.error_causes import cause_of
from pulsar_lakehouse.tables.lake import Lake
from tests.chaos.recomputation import _text
from tests.failing_writes.power_cut import Names, make_disk, names_in
from tests.failing_writes.scenario import STEPS, Step
from tests.failing_writes.shim import Failure, Shim
from tests.lake import environment, messages, own_home, read, tables
from tests.shop import SQL_TABLES, WRITTEN

LAKEHOUSE = Path(sys.executable).with_name("lakehouse")
KINDS = (Failure.ERROR, Failure.FULL, Failure.INTERRUPTED, Failure.SHORT, Failure.CRASH)
"""Kinds that leave the process alive, so that it can do the step again."""
Rows = Mapping[str, Counter[str]]
Counts = Mapping[str, Mapping[str, int]]


class Fault(NamedTuple):
    failure: Failure
    at: int
    """The number of the call that fails."""
    crash_after: int = 0
    """How many calls later there is a crash, while the failure is handled; 0 if there is none."""

    def __str__(self) -> str:
        crash = f" and a crash {self.crash_after} later" if self.crash_after else ""
        return f"{self.failure.name.lower()} at {self.at}{crash}"


@dataclass(frozen=True, kw_only=True)
class Trial:
    step: str
    faults: Sequence[Fault]
    """In the first run, then in each that is made because one has failed. The last run has none."""
    retries: int = 0
    """Of a stream within the run."""
    as_command: bool = False
    power_cut: int | None = None
    """If a crash is one of the whole machine: what its disk holds then is drawn from this."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    trial: Trial
    calls: Sequence[str]
    """Those that failed first, and their files."""
    lines: Sequence[str]
    """What the runs said; empty for those that went on."""
    seconds: float
    wrong: str = ""
    """Why it was not survived."""


class World:
    def __init__(self, spark: SparkSession, settings: Settings, shim: Shim) -> None:
        self.spark, self.settings, self.shim = spark, settings, shim
        self.counts: dict[str, Mapping[str, int]] = {}
        """How many calls of each kind a step has."""
        self._numbers = count()
        self._before: dict[str, Path] = {}
        """The home before each step."""
        self._whole: dict[str, Rows] = {}
        """The rows after each step that did not fail."""

    def prepare(self, names: Sequence[str]) -> None:
        """Make the home before each step, and do the steps with these names once without a failure."""
        last, has_broker = self._new_home(), any(STEPS[name].needs_broker for name in names)
        for name in [*STEPS][: max(map([*STEPS].index, names)) + 1]:
            if STEPS[name].needs_broker and not has_broker:
                continue
            last = self._before[name] = self._copy(last).home
            STEPS[name].before(Lake(self.spark, own_home(self.settings, last)))
            if name in names:
                own = self._copy(last)
                with self.shim.failing():
                    self._do(STEPS[name], own)
                self.counts[name], self._whole[name] = self.shim.counts, rows_of(own)
                shutil.rmtree(own.home)

    def run(self, trial: Trial) -> Outcome:
        began = time.monotonic()
        own, calls, lines = self._copy(self._before[trial.step]), list[str](), list[str]()
        fail = self._fail_command if trial.as_command else self._fail
        wrong = ""
        try:
            for fault in trial.faults:
                before = names_in(own.home)
                lines.append(fail(trial, own, fault))
                calls.append(self.shim.failed.replace(str(own.home), ""))
                if trial.power_cut is not None:
                    own = self._without_power(own, before, random.Random(trial.power_cut))
                    if not self.shim.failed:  # the step was done
                        wrong = differing(self._whole[trial.step], rows_of(own))
                elif fault.failure == Failure.CRASH or fault.crash_after:  # a new process has seen nothing of it
                    own = self._moved(own)
            if trial.as_command:
                self._command(trial.step, own)
            self._do(STEPS[trial.step], own)
            wrong = wrong or differing(self._whole[trial.step], rows_of(own))
        except Exception:
            wrong = traceback.format_exc()
        if not wrong:
            shutil.rmtree(own.home)
        seconds, missing = time.monotonic() - began, len(trial.faults) - len(calls)
        calls, lines = calls + [""] * missing, lines + [""] * (len(trial.faults) - len(lines))
        wrong = f"{own.home}: {wrong}" if wrong else ""
        return Outcome(trial=trial, calls=calls, lines=lines, seconds=seconds, wrong=wrong)

    def _fail(self, trial: Trial, own: Settings, fault: Fault) -> str:
        """Returns what a command would say."""
        run = own.run.model_copy(update={"retries": trial.retries})
        with self.shim.failing(*fault, notes=trial.power_cut is not None):
            try:
                self._do(STEPS[trial.step], own.model_copy(update={"run": run}))
            except Exception as error:
                return line_of(error).replace(str(own.home), "")
        return ""

    def _fail_command(self, trial: Trial, own: Settings, fault: Fault) -> str:
        with self.shim.failing(*fault, notes=trial.power_cut is not None):
            done = self._started(trial.step, own)
        shown = done.stderr.strip().splitlines() or [""]
        if "Traceback" in done.stdout + done.stderr:
            raise AssertionError(done.stdout + done.stderr)
        return f"exit {done.returncode}: {shown[-1]}".replace(str(own.home), "") if done.returncode else ""

    def _command(self, name: str, own: Settings) -> None:
        done = self._started(name, own)
        assert done.returncode == 0, done.stdout + done.stderr

    def _started(self, name: str, own: Settings) -> subprocess.CompletedProcess[str]:
        given = environment(own, LAKEHOUSE_ENGINE__IDLE_MINUTES="0", LAKEHOUSE_RUN__RETRIES="0")
        command = [str(LAKEHOUSE), *STEPS[name].command]
        return subprocess.run(command, env={**os.environ, **given}, cwd=own.home, capture_output=True, text=True)

    def _do(self, step: Step, own: Settings) -> None:
        with write_lease(own, WRITTEN) if step.holds_leases else nullcontext():
            step.do(Lake(self.spark, own))

    def _without_power(self, own: Settings, before: Names, draw: random.Random) -> Settings:
        left = own_home(self.settings, self._new_home())
        make_disk(self.shim, own.home, before, left.home, draw)
        shutil.rmtree(own.home)
        remove_torn_commits(left)
        return left

    def _new_home(self) -> Path:
        home = self.shim.under / f"home-{next(self._numbers)}"
        home.mkdir()
        return home

    def _copy(self, home: Path) -> Settings:
        return own_home(self.settings, shutil.copytree(home, self._new_home(), dirs_exist_ok=True))

    def _moved(self, own: Settings) -> Settings:
        moved = self._copy(own.home)
        shutil.rmtree(own.home)
        return moved


def line_of(error: Exception) -> str:
    """What a command says. It also says where details are if the error is none of our own, whose class is told here."""
    return str(error) if isinstance(error, LakehouseError) else f"{type(error).__name__}: {cause_of(error)}"


def rows_of(settings: Settings) -> Rows:
    held: dict[str, list[Any]] = {"bronze": messages(settings), **tables(settings)}
    held |= {table.name: read(settings, table.name) for table in SQL_TABLES}
    held["bronze.regions"] = [(row["key"], row["payload"]) for row in read(settings, "bronze.regions")]
    return {name: Counter(map(_text, rows)) for name, rows in held.items()}


def differing(should: Rows, held: Rows) -> str:
    found = []
    for name, rows in should.items():
        if lacking := rows - held[name]:
            found.append(f"{name} lacks {lacking.total()}, such as {next(iter(lacking))[:400]}")
        if excess := held[name] - rows:
            found.append(f"{name} has {excess.total()} too many, such as {next(iter(excess))[:400]}")
    return "; ".join(found)


def drawn(draw: random.Random, counts: Counts) -> Iterator[Trial]:
    """Trials without an end: of each step as many as of any other. In a third, what is done again fails, too."""
    while True:
        for name in draw.sample([*counts], len(counts)):
            calls = sum(counts[name].values())
            faults = [_fault(draw, calls)]
            while draw.random() < 1 / 3:
                faults.append(_fault(draw, calls))
            yield Trial(step=name, faults=faults, retries=draw.randint(0, 1))


def drawn_power_cuts(draw: random.Random, counts: Counts) -> Iterator[Trial]:
    """Steps in which the power is lost, without an end; a tenth of them at their end."""
    while True:
        for name in draw.sample([*counts], len(counts)):
            calls = sum(counts[name].values())
            at = calls * 2 if draw.random() < 0.1 else draw.randint(1, calls)
            yield Trial(step=name, faults=[Fault(Failure.CRASH, at)], power_cut=draw.getrandbits(32))


def _fault(draw: random.Random, calls: int) -> Fault:
    return Fault(draw.choice(KINDS), draw.randint(1, calls), draw.choice((0, 0, 0, 0, 0, 0, 1, 2, 5)))


def drawn_commands(draw: random.Random, counts: Counts) -> Iterator[Trial]:
    """Commands without an end. Half of them are killed."""
    while names := [name for name in counts if STEPS[name].command]:
        for name in draw.sample(names, len(names)):
            failure = draw.choice((*KINDS, *[Failure.KILL] * len(KINDS)))
            fault = Fault(failure, draw.randint(1, sum(counts[name].values())))
            yield Trial(step=name, faults=[fault], as_command=True)
