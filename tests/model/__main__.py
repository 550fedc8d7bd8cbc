"""Explores all states of two writers and the engine, and says how many there are: `make model`."""

import sys
import time

from pulsar_lakehouse.progress import CONSOLE
from tests.model.explorer import explore
from tests.model.test_model import LARGE, model_of

began = time.monotonic()
found = explore(model_of(LARGE))
seconds = time.monotonic() - began
CONSOLE.say(f"{found.states:,} states, {found.steps:,} steps, at most {found.depth} deep, in {seconds:.0f} s")
if found.broken:
    CONSOLE.say("\n".join([f"{found.broken} does not hold:", *found.trace]))
sys.exit(bool(found.broken))
