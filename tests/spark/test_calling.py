"""A function is called with arrays; what it raises is the error of a row, and what does not return is stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pulsar_lakehouse.errors import PermanentError
from pulsar_lakehouse.spark import calling
from pulsar_lakehouse.spark.calling import Caller
from pulsar_lakehouse.spark.error_causes import cause_of, is_permanent


def outcomes(
    call: Callable[..., Any],
    rows: list[Any],
    *,
    kind: pa.DataType | None = None,
    timeout: float = 5,
    group: bool = False,
) -> list[tuple[Any, Any]]:
    """The values and errors of calls whose rows have one argument, a number; None stands for arguments that fail."""
    row = pa.struct([("n", pa.int64())])
    caller = Caller(name="f", call=call, kind=kind or pa.int64(), timeout=timeout, is_aggregate=group)
    found = caller.values(pa.array(rows, pa.list_(row) if group else row))
    return [(each["value"], each["error"]) for each in found.to_pylist()]


def numbers(*given: int | None) -> list[Any]:
    return [{"n": each} for each in given]


def inverse(n: pa.Array) -> pa.Array:
    return pc.divide(60, n)


def test_one_call_has_all_rows() -> None:
    calls = list[int]()

    def counted(n: pa.Array) -> pa.Array:
        calls.append(len(n))
        return inverse(n)

    assert outcomes(counted, numbers(1, 2, None)) == [(60, None), (30, None), (None, None)]
    assert calls == [3]


def test_an_error_is_that_of_its_row() -> None:
    found = outcomes(inverse, numbers(3, 0, 5))
    assert found == [(20, None), (None, "ArrowInvalid: divide by zero"), (12, None)]


def test_one_bad_row_of_a_thousand_costs_few_calls() -> None:
    calls = list[int]()

    def counted(n: pa.Array) -> pa.Array:
        calls.append(len(n))
        return inverse(n)

    found = outcomes(counted, numbers(*([1] * 700), 0, *([2] * 299)))
    assert found == [(60, None)] * 700 + [(None, "ArrowInvalid: divide by zero")] + [(30, None)] * 299
    assert len(calls) < 40


def test_a_row_whose_arguments_fail_is_not_passed_and_has_no_value() -> None:
    assert outcomes(inverse, [{"n": 3}, None, {"n": 5}]) == [(20, None), (None, ""), (12, None)]
    assert outcomes(inverse, [None]) == [(None, "")]
    assert outcomes(inverse, []) == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda n: n.to_pylist(), "TypeError: gives list: must be a pyarrow Array"),
        (lambda n: pa.array([1, 2, 3]), "ValueError: gives 3 values for 1 rows"),
        (lambda n: pa.array(["x"]), "ArrowInvalid: Failed to parse string: 'x' as a scalar of type int64"),
        (lambda n: sys.exit("over"), "SystemExit: over"),
        (
            lambda n: "\ud800".encode(),
            "UnicodeEncodeError: 'utf-8' codec can't encode character '\\ud800' in position 0",
        ),
    ],
)
def test_what_is_no_value_is_an_error(call: Callable[..., Any], error: str) -> None:
    [(value, told)] = outcomes(call, numbers(1))
    assert (value, told[: len(error)]) == (None, error)


def test_an_error_with_half_a_surrogate_pair_is_told() -> None:
    def fails(n: pa.Array) -> pa.Array:
        raise ValueError("\ud83d\nand more")

    assert outcomes(fails, numbers(1)) == [(None, "ValueError: \\ud83d")]


def test_a_call_that_does_not_return_is_stopped() -> None:
    def sleeps(n: pa.Array) -> pa.Array:
        while pc.any(pc.equal(n, 7)).as_py():
            try:
                time.sleep(60)
            except Exception:
                continue
        return n

    before = signal.getsignal(signal.SIGALRM)
    assert outcomes(sleeps, numbers(1, 7, 2), timeout=0.2) == [
        (1, None),
        (None, "took longer than 0.2 s"),
        (2, None),
    ]
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_signal_that_comes_when_the_call_has_returned_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    before, set_timer = signal.getsignal(signal.SIGALRM), signal.setitimer

    def late(which: int, seconds: float, interval: float = 0.0) -> None:
        if not seconds:
            signal.raise_signal(signal.SIGALRM)
        set_timer(which, seconds, interval)

    monkeypatch.setattr(signal, "setitimer", late)
    assert outcomes(inverse, numbers(3)) == [(20, None)]
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_function_that_never_returns_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "MANY", 3)
    with pytest.raises(PermanentError, match=r"^function f: 3 calls in succession took longer than 0.05 s$"):
        outcomes(lambda n: time.sleep(60), numbers(1, 2, 3, 4), timeout=0.05)


def test_an_aggregate_is_called_for_each_group() -> None:
    def spread(n: pa.Array) -> Any:
        values = n.to_pylist()
        return max(values) - min(values)

    groups = [numbers(1, 5, 3), numbers(None), numbers(2)]
    error = "TypeError: unsupported operand type(s) for -: 'NoneType' and 'NoneType'"
    assert outcomes(spread, groups, group=True) == [(4, None), (None, error), (0, None)]
    assert outcomes(pc.max, [numbers(1, 5, 3)], group=True) == [(5, None)]


def test_code_that_can_not_be_interrupted_ends_its_process_and_says_where_it_is(tmp_path: Path) -> None:
    code = """
import ctypes
import pyarrow as pa
from pulsar_lakehouse.spark import calling
calling.GRACE = 0.2

def stuck(n):
    mutex, in_c = ctypes.create_string_buffer(64), ctypes.PyDLL(None)  # which keeps Python's lock
    in_c.pthread_mutex_lock(mutex), in_c.pthread_mutex_lock(mutex)

calling.Caller(name="stuck", call=stuck, kind=pa.int64(), timeout=0.2).values(pa.array([{"n": 1}]))
"""
    outside = {**os.environ, "PYTHON_FAULTHANDLER_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", code], env=outside, check=False)
    [log] = tmp_path.iterdir()
    error = RuntimeError(f"Python worker exited unexpectedly (crashed): {log.read_text()}")
    assert ended.returncode == 1
    assert cause_of(error) == "function stuck: does not return, and could not be interrupted: <string>:9"
    assert is_permanent(error)
