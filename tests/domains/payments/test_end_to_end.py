"""Payments on a real broker, with regions in a real Postgres: the tables hold what follows from the messages alone."""

import shutil
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains import DOMAINS
from pulsar_lakehouse.domains.payments.workload import EVENTS, ISSUERS, TOPICS, Workload
from pulsar_lakehouse.inspection.query import query
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.settings import Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.domains.rounds import lake_of, run, send, unaccounted
from tests.lake import read
from tests.postgres import in_postgres

MESSY = Workload(
    invoices=300,
    in_both=0.1,
    missing_regions=0.05,
    too_late=0.1,
    delayed=0.2,
    corrected=0.1,
    cancelled=0.1,
    duplicates=0.1,
    malformed=0.1,
)


@pytest.fixture
def project(settings: Settings, endpoint: Endpoint, postgres: str, tmp_path: Path) -> Settings:
    """The domain, but for its regions, which are in a table."""
    own = lake_of("payments", settings, endpoint, tmp_path)
    shutil.copytree(DOMAINS["payments"], tmp_path / "project")
    declared = tmp_path / "project" / "declarations" / "regions.py"
    in_table = declared.read_text().replace("Files", "Postgres")
    declared.write_text(in_table.replace('path="regions/*.csv"', 'table="sales.regions", every="1 second"'))
    return in_postgres(own.model_copy(update={"declarations": declared.parent}), postgres)


@pytest.mark.long
def test_tables_follow_from_the_messages(
    spark: SparkSession, endpoint: Endpoint, project: Settings, postgres: str
) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE SCHEMA sales CREATE TABLE regions (code TEXT PRIMARY KEY, name TEXT, manager TEXT)")
        connection.execute("INSERT INTO sales.regions VALUES ('CA', 'Canada', 'Barbara'), ('SE', 'Sweden', 'Edsger')")
    first = send(MESSY.first, endpoint, project)
    run(Lake(spark, project))
    waiting = {(row["region_code"], row["reason"]) for row in read(project, "quarantine.waiting_invoices")}
    assert waiting == {(code, "region missing") for code in ("DE", "PT", "US", "XX")}

    with psycopg.connect(postgres) as connection:
        others = "('DE', 'Germany', 'Ada'), ('PT', 'Portugal', 'Zoë'), ('US', 'United States', 'Grace')"
        connection.execute(f"INSERT INTO sales.regions VALUES {others}")
    late = send(MESSY.late, endpoint, project)
    run(Lake(spark, project))
    for what, sql, rows in MESSY.expected():
        assert (what, Counter(query(project, sql).fetchall())) == (what, Counter(rows))

    broken = [each for messages in (*first.values(), *late.values()) for each in messages if each.broken]
    with_payload = [each for each in broken if each.payload]  # nothing at all is a tombstone
    of_a_kind = [each for each in with_payload if (each.properties or {}).get("type") != "authorization"]
    assert len(read(project, "quarantine.malformed")) == len(of_a_kind) > 0
    good = [each for name in TOPICS for each in (*first[name], *late[name]) if not each.broken]
    assert len(read(project, "quarantine.duplicate_invoices")) == len(good) - MESSY.invoices > 0
    assert sorted(row["key"] for row in read(project, "bronze.issuer_risk")) == sorted(ISSUERS)
    assert len(read(project, "bronze.payment_events")) == len(first[EVENTS]) + len(late[EVENTS])
    assert unaccounted(Lake(spark, project)) == {}
