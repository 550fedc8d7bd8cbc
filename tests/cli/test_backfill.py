import pytest

from tests.cli.outcome import Command


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "backfill: give either days by --from and --to, or a key by --because"),
        (
            ["--from", "2026-01-01", "--because", "users:1"],
            "backfill: give either days by --from and --to, or a key by",
        ),
        (
            ["--because", "stores:1"],
            "--because stores:1: must be one of ",
        ),
        (["--because", "users:ada"], "--because users:ada: a key of users is a BIGINT, such as users:123"),
        (["--from", "today"], "--from today: must be a day, such as 2026-01-31"),
        (["--from", "2026-01-02", "--to", "2026-01-01"], "--to 2026-01-01: must not be before --from 2026-01-02"),
    ],
)
def test_what_can_not_be_backfilled(lakehouse: Command, arguments: list[str], line: str) -> None:
    done = lakehouse("backfill", *arguments)
    assert (done.code, done.line.startswith(f"lakehouse: {line}")) == (78, True), done.line
