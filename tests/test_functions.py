"""The project of the page about functions, with messages: good ones, and some on which a function fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_docs import ROOT, blocks

TEST = """
from pathlib import Path
from pulsar_lakehouse.testing import run_messages

NOON = 1767268800000

def customer(id, email):
    return {"key": str(id), "payload": {"id": id, "email": email}}

def order(id, customer, cents, note=None):
    return {"payload": {"id": id, "customerId": customer, "cents": cents, "note": note, "at": NOON}}

sql = run_messages(
    Path("home"),
    customers=[customer(1, "ada@Shop.example"), customer(2, "nobody"), customer(3, None), {"key": "1", "payload": None},
        customer(4, "@X")],
    orders=[
        *(order(id, 4, id * 100, "as  As usual") for id in (1, 2, 5)),
        order(6, 2, 1), order(7, 3, 50), order(8, 4, 1, "one two three four five"),
    ],
)
print(sql("SELECT id, domain, deleted_at IS NULL FROM silver.customers ORDER BY id"))
print(sql("SELECT topic, key, reason FROM quarantine.malformed ORDER BY topic"))
print(sql("SELECT domain, orders, CAST(cents AS INT), typical_cents FROM gold.orders_by_domain ORDER BY orders"))
print(sql("SELECT word, orders FROM gold.words ORDER BY word"))
"""


def lakehouse(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "pulsar_lakehouse.cli", *command)


def python(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
    env = outside | {"LAKEHOUSE_HOME": str(folder / "home"), "LAKEHOUSE_ENGINE__IDLE_MINUTES": "0"}
    return subprocess.run([sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, page = tmp_path_factory.mktemp("functions"), ROOT / "docs" / "functions.md"
    (folder / "declarations" / "sql").mkdir(parents=True)
    names = ("functions.py", "shop.py", "sql/orders_by_domain.sql", "sql/words.sql")
    for name, text in zip(names, (*blocks(page, "python"), *blocks(page, "sql")), strict=True):
        (folder / "declarations" / name).write_text(text)
    return folder


@pytest.mark.spark
def test_the_project_of_the_page_does_what_it_says(project: Path) -> None:
    """A corrected function is told by plan, and messages on which it failed come back."""
    done = python(project, "-c", TEST)
    assert done.stdout.splitlines() == [
        "[(1, None, False), (3, None, True), (4, 'x', True)]",
        "[('customers', '2', 'function domain_of: ValueError: an address without @'), "
        "('orders', None, 'fails note_is_short')]",
        "[('unknown', 1, 50, 50), ('x', 3, 800, 200)]",
        "[('as', 6), ('usual', 3)]",
    ], done.stderr[-3000:]
    validated = lakehouse(project, "validate", "gold.enriched_orders")
    outcomes = "SELECT outcome FROM quality.results WHERE rule = 'note_is_short'"
    assert lakehouse(project, "sql", outcomes, "--csv").stdout == "outcome\npassed\n", validated.stderr
    file = project / "declarations" / "functions.py"
    file.write_text(file.read_text().replace('raise ValueError("an address without @")', "return pc.utf8_lower(email)"))
    plan = json.loads(lakehouse(project, "plan", "--json").stdout)
    changed = [(each["table"], each["what"], each["kind"]) for each in plan["changes"]]
    another = "function domain_of: another one, at declarations/functions.py:7"
    assert changed == [
        ("silver.customers", another, "partial"),
        ("gold.enriched_orders", f"lookup customer: {another}", "partial"),
    ]
    assert plan["command"] == "lakehouse rebuild gold.enriched_orders silver.customers --approve"
    retried = lakehouse(project, "quarantine", "retry", "--topic", "customers")
    assert retried.returncode == 0, retried.stderr
    held = "SELECT id, domain FROM silver.customers WHERE id = 2"
    assert lakehouse(project, "sql", held, "--csv").stdout == "id,domain\n2,nobody\n"
