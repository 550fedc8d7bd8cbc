"""The project of the page about services, with messages: orders, and what a geocoder answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

TEST = """
from pathlib import Path
from pulsar_lakehouse.testing import run_messages

def order(id, address):
    return {"payload": {"id": id, "shipTo": address, "createdAt": 1767268800000}}

def answer(address, **said):
    return {"key": address, "payload": {"address": address, **said}}

sql = run_messages(Path("home"), orders=[order(1, "Rua A 1"), order(2, "nowhere"), order(3, "Torstr. 1")])
print(sql("SELECT id, reason FROM quarantine.waiting_orders ORDER BY id"))
answers = [answer("Rua A 1", lat=41.1, lon=-8.6), answer("nowhere"), answer("Torstr. 1", lat="north")]
sql = run_messages(Path("home"), geocode=answers)
print(sql("SELECT id, place.lat, place.lon FROM gold.enriched_orders ORDER BY id"))
print(sql("SELECT key, reason FROM quarantine.malformed"))
print(sql("SELECT id, reason FROM quarantine.waiting_orders"))
"""


@pytest.mark.spark
def test_the_project_of_the_page_joins_what_it_says(tmp_path: Path) -> None:
    project, test = blocks(ROOT / "docs" / "services.md", "python")
    (tmp_path / "declarations").mkdir()
    (tmp_path / "declarations" / "orders.py").write_text(project)
    called = "\nfrom pathlib import Path\n\ntest_orders_have_a_place(Path('other'))\n"
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    command = [sys.executable, "-c", TEST + test + called]
    done = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "[(1, 'place missing'), (2, 'place missing'), (3, 'place missing')]",
            "[(1, 41.1, -8.6), (2, None, None)]",
            "[('Torstr. 1', 'lat is no double: north')]",
            "[(3, 'place missing')]",
        ],
    ), done.stderr[-2000:]
