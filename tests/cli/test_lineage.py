from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulsar_lakehouse.cli.lineage import told
from pulsar_lakehouse.jobs.lineage.kept import LastRun
from tests.cli.outcome import Command, Outcome


def test_lineage_is_what_is_made_from_what_and_how_columns_are(lakehouse: Command, tmp_path: Path) -> None:
    done = lakehouse("lineage", "--picture", "lineage.svg")
    assert (done.code, "land items" in done.out) == (0, True)
    assert (tmp_path / "lineage.svg").read_text().startswith("<svg ")
    assert lakehouse("lineage", "silver.users.parent_user_id") == Outcome(
        0,
        "silver.users.parent_user_id = nullif(parentUserId, -1)\n"
        "└── bronze.users.payload.parentUserId\n"
        "    └── topic users.parentUserId\n",
        "",
    )
    assert lakehouse("lineage", "silver.users.age").code == 78


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("COMPLETE", "2 h ago, 3 rows"),
        ("FAIL", "2 h ago, failed"),
        ("ABORT", "2 h ago, stopped"),
        ("START", "2 h ago, has not ended"),
    ],
)
def test_a_last_run_is_told_in_few_words(state: str, said: str) -> None:
    at = datetime.now(UTC) - timedelta(hours=2)
    assert told("silver.users", LastRun(state=state, at=at, read=9, written={"silver.users": 3})) == said
