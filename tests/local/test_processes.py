import subprocess
import sys
import time

import psutil

from pulsar_lakehouse.local.processes import begun_by, end

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_what_survives_its_parent_is_found_and_ended() -> None:
    parent = psutil.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True, start_new_session=True)
    leader = {parent.pid: parent.create_time()}
    child = int(parent.stdout.readline())
    assert sorted(process.pid for process in begun_by(leader)) == sorted([parent.pid, child])
    parent.kill()
    parent.wait()
    [orphan] = begun_by(leader)
    assert orphan.pid == child
    end([orphan], timeout=10)
    assert begun_by(leader) == []


def test_a_process_that_has_got_the_same_id_later_is_not_taken_for_it() -> None:
    other = psutil.Popen(["sleep", "60"], start_new_session=True)
    assert begun_by({other.pid: time.time() - 3600}) == []
    end([other], timeout=10)
