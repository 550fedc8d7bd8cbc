"""`lakehouse serve`: a SQL endpoint with a schema for each layer of tables."""

import time

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.operating import endpoint_users
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.sql_server.serve import serving

REFRESH = 5.0
"""Seconds between two looks for new tables. New rows are visible as soon as they are committed."""


def serve_command() -> None:
    """Serve the tables read-only over JDBC to users with a password, until Ctrl-C."""
    settings = load_settings()
    with serving(settings, endpoint_users(settings)) as served:
        report.say(f"SQL is served at {served.url} to {', '.join(settings.serve.users)}, until Ctrl-C")
        if not served.confined:
            report.say(
                "This system has no Landlock: only the check of each statement keeps users from other files", "yellow"
            )
        said: set[str] = set()
        while True:
            for name in sorted(served.unreadable - said):
                report.say(f"{name} can't be read, and is not served", "yellow")
            said = served.unreadable
            time.sleep(REFRESH)
            served.refresh()
