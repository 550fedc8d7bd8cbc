"""Commands that run in processes of the fork server. It loads no libraries here, which changes only the time."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from pulsar_lakehouse.engine import forked
from pulsar_lakehouse.progress import wait_until

SERVER = "from pulsar_lakehouse.engine import forkserver; forkserver.LIBRARIES = []; forkserver.main()"
COMMAND = [sys.executable, "-P", "-m", "pulsar_lakehouse.cli"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "engine").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def server(home: Path) -> Iterator[psutil.Popen]:
    command = [sys.executable, "-P", "-c", SERVER, str(home / "engine"), "600"]
    with psutil.Popen(command, stdin=subprocess.PIPE) as process:
        assert wait_until((home / "engine" / "commands").exists, "", 10)
        yield process


def environment(home: Path, **more: str) -> Mapping[str, str]:
    return {**os.environ, "LAKEHOUSE_HOME": str(home), **more}


def run(home: Path, *arguments: str, folder: Path | None = None, **more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*COMMAND, *arguments], env=environment(home, **more), cwd=folder, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def waiting(home: Path, server: psutil.Popen) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """A command that goes on until it is told to end, and the process that the fork server runs it in."""
    command = [*COMMAND, "wait", "orders", "1:1:-1", "--timeout", "5m"]  # nothing has landed
    with subprocess.Popen(
        command,
        env=environment(home),
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # or else ignored where the tests run with `&`
    ) as asking:
        assert asking.stderr is not None
        assert b"Waiting for orders" in asking.stderr.readline()
        yield asking, server.children()[0]
        asking.kill()


def ends(process: psutil.Process) -> bool:
    return wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, "", 10)


def has_forked(server: psutil.Popen) -> bool:
    """Whether a child of it has ended: they take CPU seconds."""
    return server.cpu_times().children_user > 0


def test_a_command_runs_with_the_arguments_and_the_folder_of_who_asks(
    home: Path, server: psutil.Popen, tmp_path: Path
) -> None:
    code, _, _ = run(home, "init", "stores", folder=tmp_path)

    assert (code, (tmp_path / "stores" / "lakehouse.toml").exists(), has_forked(server)) == (0, True, True)


def test_a_command_reads_the_environment_of_who_asks(home: Path, server: psutil.Popen, tmp_path: Path) -> None:
    code, _, error = run(home, "status", folder=tmp_path, LAKEHOUSE_PULSAR__NAMESPACE="no")

    assert (code, "LAKEHOUSE_PULSAR__NAMESPACE" in error, has_forked(server)) == (78, True, True)


def test_output_and_exit_code_are_those_of_the_command(home: Path, server: psutil.Popen) -> None:
    code, output, error = run(home, "nonsense")

    assert (code, output, "Usage: lakehouse" in error, has_forked(server)) == (2, "", True, True)


def test_a_command_ends_with_who_has_asked_for_it(waiting: tuple[subprocess.Popen[bytes], psutil.Process]) -> None:
    asking, command = waiting

    asking.kill()

    assert ends(command)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_handed_on(waiting: tuple[subprocess.Popen[bytes], psutil.Process], number: int) -> None:
    asking, command = waiting

    asking.send_signal(number)

    assert (asking.wait(10), ends(command)) == (130, True)


def test_who_asks_ends_by_the_signal_that_ends_the_command(
    waiting: tuple[subprocess.Popen[bytes], psutil.Process],
) -> None:
    asking, command = waiting

    command.kill()

    assert asking.wait(10) == -signal.SIGKILL


def test_a_command_ends_with_a_server_that_is_killed(
    waiting: tuple[subprocess.Popen[bytes], psutil.Process], server: psutil.Popen
) -> None:
    asking, command = waiting

    server.kill()

    assert (asking.wait(10), ends(command)) == (1, True)


def test_a_server_ends_after_its_last_command(
    home: Path, waiting: tuple[subprocess.Popen[bytes], psutil.Process], server: psutil.Popen
) -> None:
    asking, command = waiting

    server.stdin.close()

    assert wait_until(lambda: not (home / "engine" / "commands").exists(), "", 10)
    assert command.is_running()
    asking.terminate()
    assert server.wait(10) == 0


def test_a_command_runs_by_itself_without_an_engine(home: Path) -> None:
    assert run(home, "--version")[0] == 0


def test_a_command_with_other_libraries_runs_by_itself(home: Path, server: psutil.Popen, tmp_path: Path) -> None:
    code, _, _ = run(home, "--version", PYTHONPATH=str(tmp_path))

    assert (code, has_forked(server)) == (0, False)


def test_a_frozen_server_is_not_waited_for(home: Path, server: psutil.Popen, monkeypatch: pytest.MonkeyPatch) -> None:
    server.suspend()
    monkeypatch.setattr(forked, "PATIENCE", 0.5)
    monkeypatch.setattr(forked, "_can_be_forked", lambda: True)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home))

    try:
        forked.run_forked()  # or else it would end this process
    finally:
        server.resume()

    assert not has_forked(server)


def test_only_this_user_reaches_a_server(home: Path, server: psutil.Popen) -> None:
    assert (home / "engine" / "commands").stat().st_mode & 0o077 == 0


def test_an_engine_of_another_user_is_not_asked(
    home: Path, server: psutil.Popen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(forked, "_can_be_forked", lambda: True)
    monkeypatch.setenv("LAKEHOUSE_HOME", str(home))

    forked.run_forked()

    assert not has_forked(server)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["up"], id="starts what outlives the engine"),
        pytest.param(["run", "--every", "1s"], id="goes on for long"),
        pytest.param(["send", "orders", "/dev/fd/63"], id="reads an open file of this process"),
    ],
)
def test_some_commands_run_by_themselves(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["lakehouse", *arguments])

    assert not forked._can_be_forked()


def test_a_failure_of_python_itself_is_shown(home: Path, server: psutil.Popen, tmp_path: Path) -> None:
    (tmp_path / "pulsar_lakehouse").mkdir()
    (tmp_path / "pulsar_lakehouse" / "__init__.py").write_text("raise ValueError('broken')")
    client = f"import sys; from pulsar_lakehouse.engine import forked; sys.path.insert(0, {str(tmp_path)!r}); "
    client += "sys.argv = ['lakehouse', 'status']; forked.run_forked()"

    done = subprocess.run(
        [sys.executable, "-c", client], env=environment(home), capture_output=True, text=True, timeout=60
    )

    assert (done.returncode, "ValueError: broken" in done.stderr) == (1, True)


def test_a_small_server_loads_libraries_once_it_is_asked_and_is_small_again_when_idle(home: Path) -> None:
    code = SERVER.replace("LIBRARIES = []", "LIBRARIES = ['fastavro']")
    with psutil.Popen([sys.executable, "-P", "-c", code, str(home / "engine"), "2"], stdin=subprocess.PIPE) as server:
        assert wait_until((home / "engine" / "commands").exists, "", 10)
        assert not has_loaded(server)

        run(home, "--version")

        assert wait_until(lambda: has_loaded(server), "", 10)
        assert wait_until(lambda: not has_loaded(server), "", 10)
        assert wait_until((home / "engine" / "commands").exists, "", 10)
        assert run(home, "--version")[0] == 0


def has_loaded(server: psutil.Popen) -> bool:
    return any("fastavro" in each.path for each in server.memory_maps())


def test_a_command_finds_all_libraries_loaded(tmp_path: Path) -> None:
    code = """
import sys
from importlib import import_module
from pulsar_lakehouse.engine.forkserver import LIBRARIES
for library in LIBRARIES:
    import_module(library)
loaded = {*sys.modules}
for name in [each for each in loaded if each.split(".")[0] == "pulsar_lakehouse"]:
    del sys.modules[name]
for command in "enrich land merge plan publish reconcile refresh run sql status validate".split():
    import_module(f"pulsar_lakehouse.cli.{command}")
print({each for each in {*sys.modules} - loaded if each.split(".")[0] != "pulsar_lakehouse"} or "none")
"""
    script = tmp_path / "loads.py"  # without a file, PySpark takes the process for a doctest, and ends it
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "none\n"
