"""Calls a project's function in a Python process of Spark: what it raises belongs to a row, and it can't hang."""

import faulthandler
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_lakehouse.errors import PermanentError

MANY = 20
"""Calls, one after the other, that do not return in time: then something is wrong with the function, not the rows."""
FEW = 16
"""Rows that get a call each once their common call has failed: halves of so few save nothing if many are bad."""
GRACE = 10.0
"""Seconds that code gets which can't be interrupted. After that, its process ends."""
LONGEST = 200
"""Characters of an error."""


class StoppedError(BaseException):
    """Interrupts a call. No Exception, so that a function that catches those does not go on."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Calls a function for the rows of Arrow batches."""

    name: str
    call: Callable[..., Any]
    kind: pa.DataType
    """The type of its values."""
    timeout: float
    """Seconds."""
    is_aggregate: bool = False

    def values(self, rows: pa.Array) -> pa.Array:
        """For each row of arguments: the `value`, and the `error`. A row that is NULL has no arguments, and no value.

        The rows of an aggregate are arrays, with the arguments of each row of a group. Raises PermanentError if many
        calls in succession do not return in time.
        """
        given = rows.drop_null()
        values, errors = self._each_group(given) if self.is_aggregate else self._all(given.flatten(), len(given))
        if len(given) < len(rows):
            places = iter(range(len(given)))
            taken = pa.array([next(places) if each else None for each in rows.is_valid().to_pylist()], pa.int64())
            values, errors = values.take(taken), pc.if_else(rows.is_valid(), errors.take(taken), "")
        return pa.StructArray.from_arrays([values, errors], ["value", "error"])

    def _all(self, arguments: Sequence[pa.Array], count: int) -> tuple[pa.Array, pa.Array]:
        """One call for all rows; if that fails, one for each half, and so on: a few bad rows cost a few calls.

        Rows that took too long have no halves, as each of those may take as long.
        """
        if not count:
            return pa.nulls(0, self.kind), pa.nulls(0, pa.string())
        try:
            return self._called(arguments, count), pa.nulls(count, pa.string())
        except (Exception, SystemExit, StoppedError) as error:
            if count == 1:
                return pa.nulls(1, self.kind), pa.array([told(error)], pa.string())
            has_halves = count > FEW and not isinstance(error, StoppedError)
        if not has_halves:
            return self._each([each.slice(at, 1) for each in arguments] for at in range(count))
        middle = count // 2
        first = self._all([each.slice(0, middle) for each in arguments], middle)
        second = self._all([each.slice(middle) for each in arguments], count - middle)
        return pa.concat_arrays([first[0], second[0]]), pa.concat_arrays([first[1], second[1]])

    def _each_group(self, groups: pa.Array) -> tuple[pa.Array, pa.Array]:
        return self._each(groups[at].values.flatten() for at in range(len(groups)))

    def _each(self, calls: Iterator[Sequence[pa.Array]]) -> tuple[pa.Array, pa.Array]:
        values, errors, stopped = [pa.nulls(0, self.kind)], list[str | None](), 0
        for arguments in calls:
            try:
                values.append(self._called(arguments, 1))
                errors.append(None)
                stopped = 0
            except (Exception, SystemExit, StoppedError) as error:
                values.append(pa.nulls(1, self.kind))
                errors.append(told(error))
                stopped = stopped + 1 if isinstance(error, StoppedError) else 0
            if stopped == MANY:
                raise PermanentError(f"function {self.name}: {MANY} calls in succession {told(StoppedError(self))}")
        return pa.concat_arrays(values), pa.array(errors, pa.string())

    def _called(self, arguments: Sequence[pa.Array], count: int) -> pa.Array:
        """The values of a call for so many rows, or for a group, which gives one."""
        found = self._in_time(arguments)
        if self.is_aggregate:
            found = pa.array([found.as_py() if isinstance(found, pa.Scalar) else found], self.kind)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        if not isinstance(found, pa.Array):
            raise TypeError(f"gives {type(found).__name__}: must be a pyarrow Array")
        if len(found) != count:
            raise ValueError(f"gives {len(found)} values for {count} rows")
        return found.cast(self.kind)

    def _in_time(self, arguments: Sequence[pa.Array]) -> Any:
        """What a call gives. Interrupts it after the time; and ends the process if that does not help, as in C."""
        is_running = True

        def stop(number: int, frame: FrameType | None) -> None:
            if is_running:
                raise StoppedError(self)

        before, log = signal.signal(signal.SIGALRM, stop), _log_of_crashes()
        try:
            if log is not None:
                faulthandler.dump_traceback_later(self.timeout + GRACE, exit=True, file=log)
            signal.setitimer(signal.ITIMER_REAL, self.timeout, 1)
            return self.call(*arguments)
        finally:
            is_running = False  # Python handles no signal before this
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if log is not None:
                faulthandler.cancel_dump_traceback_later()
                os.close(log)


def told(error: BaseException) -> str:
    """The kind of an error, and the first line of what it says."""
    if isinstance(error, StoppedError):
        [caller] = error.args
        return f"took longer than {caller.timeout:g} s"
    try:
        said = next(iter(str(error).splitlines()), "")
    except Exception:  # then only its kind is known
        said = ""
    line = ": ".join(filter(None, (type(error).__name__, said))).encode(errors="backslashreplace").decode()
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _log_of_crashes() -> int | None:
    """The file from which Spark tells why a process has crashed; None outside of Spark."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    return os.open(Path(folder, str(os.getpid())), os.O_WRONLY | os.O_APPEND | os.O_CREAT) if folder else None
