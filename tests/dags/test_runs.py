"""The pipeline as Airflow runs it, on a real broker and real Spark: the tables hold what the oracle says."""

import json
import os
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import psutil
import pytest
import requests
from deltalake import DeltaTable
from playwright.sync_api import Page, expect
from pyspark.sql import SparkSession

from pulsar_lakehouse.domains.shop.declarations.orders import ORDERS
from pulsar_lakehouse.domains.shop.workload import HOUR, Workload
from pulsar_lakehouse.engine import control
from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.gold.enrichment.backfill import Scope, backfill
from pulsar_lakehouse.inspection.table_status import table_statuses
from pulsar_lakehouse.jobs.steps import run_all
from pulsar_lakehouse.leases.leases import write_lease
from pulsar_lakehouse.local import airflow
from pulsar_lakehouse.local.processes import read_state
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.produce import produce
from pulsar_lakehouse.pulsar.topic_admin import create_published
from pulsar_lakehouse.settings import Engine, Settings
from pulsar_lakehouse.tables.lake import Lake
from tests.airflow_api import PATIENCE, RUNS, Api, wait_until
from tests.browser import opened_page
from tests.lake import environment, expected, messages, own_topics, read, tables
from tests.oracle import Oracle
from tests.shop import SHOP, SQL_TABLES, TOPICS, WRITTEN

MESSY = Workload(
    users=100,
    orders=1_000,
    # All orders are of the first three days of the year, for which a test runs a backfill.
    start=Workload.start + 12 * HOUR,
    days=2,
    late_users=0.2,
    missing_users=0.05,
    deleted_users=0.05,
    duplicates=0.1,
    malformed=0.1,
)
FIRST = "bronze.users"
"""The table that *land* writes first."""
BOXES = ("news", "land", "merge", "enrich", "reconcile", "validate", "refresh", "publish")
GREEN = ("background-color", "oklch(0.47 0.2 149)")
PICTURES = os.environ.get("PICTURES")
"""The folder to which `make pictures` saves pictures of the pages."""
REFRESHED = tuple(table.name for table in SQL_TABLES)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def project(lake: Lake, endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A project with the first messages in gold or in quarantine. Late ones are still in the broker."""
    project = own_topics(lake.settings, endpoint, tmp_path_factory.mktemp("dags"))
    create_published(SHOP.published_topics, endpoint, project)
    produce([(topic, MESSY.first(topic.name)) for topic in TOPICS], endpoint, project)
    list(run_all(Lake(lake.spark, project)))
    produce([(topic, MESSY.late(topic.name)) for topic in TOPICS], endpoint, project)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(project, LAKEHOUSE_SPARK__MEMORY="1g").items():
            patch.setenv(name, value)
        yield project


@pytest.fixture(scope="module")
def api(project: Settings) -> Iterator[Api]:
    of_airflow = airflow._environment
    paused = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"}  # each test switches on what it needs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(airflow, "_environment", lambda project: {**of_airflow(project), **paused})
        control.start(project.model_copy(update={"engine": Engine()}))
        api = Api(airflow.start(project))
    wait_until(api.has_dags)
    yield api
    airflow.stop(project)
    assert airflow.running(project) is None
    assert drivers(project) == []
    control.stop(project)


@pytest.fixture
def page(project: Settings, tmp_path: Path) -> Iterator[Page]:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the headless Chromium of npm is for Linux on x86-64")
    with opened_page(project.cache, tmp_path) as page:
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield page


def drivers(project: Settings) -> list[psutil.Process]:
    """The JVMs and Python processes of steps that run on this project. The JVM that the engine has idle is none.

    A forked command has the command line of its parent, the fork server.
    """
    engine = control.state(project)
    idle = None if engine is None or engine["borrower"] or not engine["jvm"] else engine["jvm"]["pid"]
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        ours = (process.info["environ"] or {}).get("LAKEHOUSE_HOME") == str(project.home)
        line = {*(process.info["cmdline"] or ())}
        is_server = engine is not None and process.ppid() == engine["pid"]
        is_forked = "pulsar_lakehouse.engine.forkserver" in line and not is_server
        step = {"pulsar_lakehouse.cli", "org.apache.spark.deploy.SparkSubmit"}
        if ours and process.pid != idle and (is_forked or step & line):
            found.append(process)
    return found


def holder(project: Settings) -> int | None:
    """The pid of our process that writes gold, or None."""
    file = project.home / "leases" / ORDERS.gold_table
    told = file.read_text() if file.exists() else ""
    pid = json.loads(told)["pid"] if told else None
    return pid if pid in [process.pid for process in drivers(project)] else None


def start_run(api: Api, project: Settings) -> str:
    """Trigger the pipeline; returns the run that writes gold. The runs behind it are failed."""
    api.switch("pipeline", on=True)
    api.call("POST", RUNS, logical_date=None)
    wait_until(lambda: holder(project))  # it belongs to this run, or to a scheduled one
    [started] = api.call("GET", f"{RUNS}?state=running")["dag_runs"]
    api.fail_others(run := f"{RUNS}/{started['dag_run_id']}")
    return run


def orders_of(oracle: Oracle, project: Settings) -> str:
    """The line of the reconciliation about orders."""
    malformed = sum(topic == "orders" for topic, _ in oracle.malformed)
    landed = sum(message.topic == "orders" for message in messages(project))
    return (
        f"orders: {landed:,} landed = {len(oracle.gold):,} enriched + {len(oracle.waiting):,} waiting + "
        f"{len(oracle.duplicates):,} duplicates + 0 discarded + {malformed:,} malformed"
    )


def take_picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


def lose_orders(project: Settings, day: str) -> int:
    lost = int(
        DeltaTable(project.table_path("gold.enriched_orders")).delete(f"order_date = '{day}'")["num_deleted_rows"]
    )
    assert lost > 0
    return lost


def test_a_scheduled_run_in_which_a_step_finds_its_table_taken_and_is_tried_again(api: Api, project: Settings) -> None:
    oracle = Oracle().run(messages(project))
    assert oracle.waiting
    before = set(messages(project))
    with write_lease(project, [FIRST]):
        api.switch("pipeline", on=True)
        wait_until(api.scheduled)
        run = f"{RUNS}/{api.scheduled()['dag_run_id']}"
        task = f"{run}/taskInstances/land"
        wait_until(lambda: api.call("GET", task)["state"] == "up_for_retry" and api.backlogs())
    wait_until(lambda: api.has_ended(run))
    api.switch("pipeline", on=False)
    assert api.call("GET", run)["state"] == "success"
    assert api.call("GET", task)["try_number"] > 1
    [cause, end] = [line for line in api.log(f"{task}/logs/1") if line.get("level") == "error"]
    assert cause["event"].startswith(f"lakehouse: {FIRST} is being written by pid {os.getpid()} ")
    assert (end["event"], end["exit_code"]) == ("Task exited", BusyError.exit_code)
    assert not any("error_detail" in line for line in api.log(f"{task}/logs/1"))
    new = [message for message in messages(project) if message not in before]
    assert tables(project) == expected(oracle.run(new))
    assert sum(row["orders"] for row in read(project, "gold.revenue_by_hour")) == len(oracle.gold)
    assert orders_of(oracle, project) in api.call("GET", run)["note"].splitlines()
    states = {task["task_id"]: task["state"] for task in api.call("GET", f"{run}/taskInstances")["task_instances"]}
    assert states == dict.fromkeys(BOXES, "success")


def test_each_box_has_a_note_of_what_it_did_and_what_its_tables_hold(api: Api, project: Settings) -> None:
    run = f"{RUNS}/{api.scheduled()['dag_run_id']}/taskInstances"
    notes = {box: api.call("GET", f"{run}/{box}")["note"].splitlines() for box in BOXES}
    held = {status.name: f"{status.name}: {status.rows:,} rows" for status in table_statuses(project)}
    assert notes["news"][0].startswith("New messages: ")
    assert notes["land"][0].startswith("land: ")
    assert f"{held['silver.users']}, up to date" in notes["merge"]
    assert f"{held['gold.enriched_orders']}, up to date" in notes["enrich"]
    assert notes["validate"][0].startswith("quality: ")
    assert f"{held['gold.revenue_by_hour']}, up to date" in notes["refresh"]
    assert notes["publish"][0].startswith("publish: ")


def test_assets_follow_from_each_other(api: Api) -> None:
    [table] = api.call("GET", "assets?name_pattern=gold.enriched_orders")["assets"]
    graph = api.of_pages(f"dependencies?node_id=asset:{table['id']}&dependency_type=data")
    names = {node["id"]: node["label"] for node in graph["nodes"]}
    edges = {(names[edge["source_id"]], names[edge["target_id"]]) for edge in graph["edges"]}
    assert {
        ("bronze.users", "pipeline.merge"),
        ("pipeline.merge", "silver.users"),
        ("silver.users", "pipeline.enrich"),
        ("bronze.orders", "pipeline.enrich"),
        ("pipeline.enrich", "gold.enriched_orders"),
        ("gold.enriched_orders", "pipeline.refresh"),
        ("pipeline.refresh", "gold.revenue_by_hour"),
        ("gold.enriched_orders", "pipeline.publish"),
    } <= edges
    assert ("bronze.users", "pipeline.enrich") not in edges


def test_events_of_assets_say_what_their_tables_hold(api: Api, project: Settings) -> None:
    events = api.call("GET", "assets/events?source_dag_id=pipeline&order_by=-timestamp&limit=100")["asset_events"]
    told = {event["name"]: event["extra"] for event in reversed(events)}
    assert told.pop("pulsar.enriched_orders") == {}  # a topic
    held = {status.name: status for status in table_statuses(project)}
    assert {name: (extra["rows"], extra["version"]) for name, extra in told.items()} == {
        name: (held[name].rows, held[name].version) for name in (*WRITTEN, *REFRESHED)
    }
    assert told["gold.enriched_orders"]["lag"] == 0


def test_steps_tell_their_lineage_as_runs_of_their_task(project: Settings) -> None:
    def told_by(step: str) -> tuple[str, str, str]:
        *_, last = (project.home / "lineage" / f"{step}.jsonl").read_text().splitlines()
        event = json.loads(last)
        parent = event["run"]["facets"]["parent"]
        return event["eventType"], parent["job"]["name"], parent["root"]["job"]["name"]

    assert told_by("land users") == ("COMPLETE", "pipeline.land", "pipeline")
    assert told_by("enrich orders") == ("COMPLETE", "pipeline.enrich", "pipeline")
    assert told_by("refresh gold.revenue_by_hour") == ("COMPLETE", "pipeline.refresh", "pipeline")


def test_messages_that_waited_were_an_event(api: Api) -> None:
    """The trigger saw the late users, which could not land while another process held their table."""
    assert "users" in api.backlogs()[0]["payload"]


def test_the_report_is_for_those_who_are_logged_in(api: Api) -> None:
    task = f"{RUNS}/{api.scheduled()['dag_run_id']}/taskInstances/validate"
    link = api.call("GET", f"{task}/links")["extra_links"]["Report"]
    assert link == f"{api.found.url}/lakehouse/quality/"
    assert requests.get(link, timeout=60).status_code == 401


def test_a_backfill_of_three_days_recomputes_them_as_if_all_had_come_at_once(api: Api, project: Settings) -> None:
    """Orders that gold had lost come back, and earlier ones get the users as they are now."""
    wait_until(lambda: drivers(project) == [])
    today = expected(Oracle().run(messages(project)))
    lose_orders(project, "2026-01-02")
    api.switch("reprocess", on=True)
    days = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-03T00:00:00Z", "max_active_runs": 3}
    api.call("POST", "backfills", dag_id="reprocess", **days)
    wait_until(lambda: api.backfilled("success") == 3)
    assert tables(project) == today
    notes = [run["note"] for run in api.call("GET", "dags/reprocess/dagRuns?run_type=backfill&order_by=id")["dag_runs"]]
    assert [note.partition(": ")[0] for note in notes] == [f"orders, 2026-01-0{day}" for day in (1, 2, 3)]


def test_a_dry_run_changes_nothing_and_tells_nobody(api: Api, project: Settings) -> None:
    def events() -> int:
        found = api.call("GET", "assets/events?source_dag_id=reprocess")
        return int(found["total_entries"])

    runs = "dags/reprocess/dagRuns"
    # Switching the DAG on has also started the run of yesterday.
    wait_until(lambda: api.call("GET", f"{runs}?state=running")["total_entries"] == 0)
    before = (events(), tables(project))
    run = api.call("POST", runs, logical_date=None, conf={"dry_run": True})["dag_run_id"]
    wait_until(lambda: api.call("GET", f"{runs}/{run}")["state"] == "success")
    assert (events(), tables(project)) == before


def sign_in(page: Page, api: Api) -> None:
    page.goto(api.found.url)
    page.locator("[name=username]").fill(api.found.user)
    page.locator("[name=password]").fill(api.found.password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Dags").click()


def test_the_pages(api: Api, project: Settings, page: Page) -> None:
    found, today = api.found, tables(project)
    sign_in(page, api)
    run = api.scheduled()["dag_run_id"]
    page.goto(f"{found.url}/dags/pipeline/runs/{run}")
    for step in BOXES:
        expect(page.get_by_test_id(f"grid-{run}-{step}").get_by_test_id("task-state-badge")).to_have_css(*GREEN)
    expect(page.get_by_text(api.scheduled()["note"].splitlines()[0])).to_be_visible()
    take_picture(page, "grid")

    page.goto(f"{found.url}/assets")
    page.get_by_role("link", name="gold.enriched_orders").click()
    page.get_by_text("Task Dependencies").click()
    for name in (*WRITTEN, *REFRESHED, *BOXES[1:4]):
        expect(page.locator(".react-flow__node").filter(has_text=name).first).to_be_visible()
    page.get_by_label("Fit View").click()
    page.wait_for_timeout(2_000)  # it moves there
    take_picture(page, "assets")

    page.goto(f"{found.url}/dags/pipeline/runs/{run}/tasks/validate/details")
    page.get_by_role("link", name="Report").click()
    expect(page.get_by_role("link", name="gold.enriched_orders")).to_be_visible()

    lose_orders(project, "2026-01-02")
    wait_until(lambda: api.call("GET", "backfills?dag_id=reprocess")["backfills"][0]["completed_at"])
    page.goto(f"{found.url}/dags/reprocess")
    page.get_by_role("button", name="Trigger").click()
    page.get_by_role("dialog").get_by_text("Backfill").first.click()
    dialog = page.get_by_role("dialog").filter(has_text="Reprocess Behavior")
    fields = dialog.get_by_test_id("datetime-input")
    expect(fields).to_have_count(2)
    for field, day in zip(fields.all(), ("2026/01/02", "2026/01/03"), strict=True):
        field.click()
        page.get_by_placeholder("YYYY/MM/DD").locator("visible=true").fill(day)
        page.get_by_placeholder("HH:mm").locator("visible=true").fill("00:00")
        page.keyboard.press("Escape")
        expect(page.get_by_placeholder("HH:mm").locator("visible=true")).to_have_count(0)
    dialog.get_by_text("All Runs").click()
    expect(dialog.get_by_text("2 runs will be triggered")).to_be_visible()
    dialog.get_by_role("button", name="Run Backfill").click()
    wait_until(lambda: api.call("GET", "backfills?dag_id=reprocess")["total_entries"] == 2)
    page.reload()  # without a run in progress, the grid does not look for new runs
    page.mouse.move(0, 0)
    badges = [
        page.get_by_test_id(f"grid-backfill__{end}T00:00:00+00:00-recompute_orders").get_by_test_id("task-state-badge")
        for end in ("2026-01-03", "2026-01-04")
    ]
    for badge in badges:
        expect(badge).not_to_have_css(*GREEN)
    for badge in badges:
        expect(badge).to_have_css(*GREEN, timeout=PATIENCE * 1_000)
    take_picture(page, "backfill")
    assert tables(project) == today


def test_the_page_is_in_the_navigation(api: Api, page: Page) -> None:
    sign_in(page, api)
    page.get_by_role("link", name="Lakehouse").click()
    shown = page.frame_locator("iframe")
    expect(shown.get_by_role("heading", name="What is wrong")).to_be_visible()
    take_picture(page, "page")
    shown.get_by_role("link", name="Tables").click()
    expect(shown.get_by_role("heading", name="Tables", level=1)).to_be_visible()
    take_picture(page, "page_tables")
    page.emulate_media(color_scheme="dark")
    shown.get_by_role("link", name="Quarantine").click()
    expect(shown.get_by_role("heading", name="Waiting orders")).to_be_visible()
    take_picture(page, "page_quarantine")


def test_no_step_below_one_that_fails_starts(api: Api, project: Settings) -> None:
    """The reconciliation finds that orders were lost."""
    run = f"{RUNS}/{api.scheduled()['dag_run_id']}"
    task = f"{run}/taskInstances/reconcile"
    oracle = Oracle()
    oracle.run(messages(project))
    lost = lose_orders(project, "2026-01-02")
    api.switch("pipeline", on=True)
    api.clear(run, "reconcile")
    # Runs that the schedule or messages start in the meantime would go first.
    wait_until(lambda: api.is_alone(run, task, "up_for_retry"))
    api.call("PATCH", task, new_state="failed")  # instead of five retries
    wait_until(lambda: api.has_ended(run))
    enriched = f"{len(oracle.gold):,} enriched"
    states = {each["task_id"]: each["state"] for each in api.call("GET", f"{run}/taskInstances")["task_instances"]}
    below = ("validate", "refresh", "publish")
    assert states == {
        **dict.fromkeys(BOXES, "success"),
        "reconcile": "failed",
        **dict.fromkeys(below, "upstream_failed"),
    }
    note = orders_of(oracle, project).replace("=", "≠").replace(enriched, f"{len(oracle.gold) - lost:,} enriched")
    assert note in api.call("GET", run)["note"]
    api.switch("pipeline", on=False)
    api.fail_others(run)
    wait_until(lambda: drivers(project) == [])


def test_the_page_of_a_run_that_failed(api: Api, page: Page) -> None:
    run = api.scheduled()["dag_run_id"]
    sign_in(page, api)
    page.goto(f"{api.found.url}/dags/pipeline/runs/{run}/tasks/reconcile")
    expect(page.get_by_text("orders: ").first).to_be_visible()
    take_picture(page, "failed")


def test_a_run_is_repaired_by_clearing_what_failed(api: Api, project: Settings, spark: SparkSession) -> None:
    """A backfill restores the orders that were lost."""
    run = f"{RUNS}/{api.scheduled()['dag_run_id']}"
    task = f"{run}/taskInstances/reconcile"
    oracle = Oracle()
    today = expected(oracle.run(messages(project)))
    day = date(2026, 1, 2)
    with write_lease(project, [ORDERS.gold_table]):
        backfill(Lake(spark, project), ORDERS, Scope(since=day, until=day))
    api.switch("pipeline", on=True)
    api.clear(run, "reconcile")
    wait_until(lambda: api.is_alone(run, task, "success"))
    wait_until(lambda: api.has_ended(run))
    api.switch("pipeline", on=False)
    assert tables(project) == today
    assert orders_of(oracle, project) in api.call("GET", run)["note"].splitlines()
    api.fail_others(run)
    wait_until(lambda: drivers(project) == [])


def test_messages_that_come_to_an_empty_backlog_start_a_run(api: Api, project: Settings, endpoint: Endpoint) -> None:
    def has_started() -> bool:
        # Scheduled runs could land them before the trigger runs. It starts when Airflow next parses the DAG.
        api.fail_others("")
        return any(moment > sent for moment in api.started_by_messages())

    api.switch("pipeline", on=True)
    sent = datetime.now(UTC)
    produce([(topic, MESSY.late(topic.name)) for topic in TOPICS if topic.name == "users"], endpoint, project)
    wait_until(has_started)


def test_what_a_killed_scheduler_has_left_holds_its_table_until_it_is_stopped(api: Api, project: Settings) -> None:
    start_run(api, project)
    left = drivers(project)
    pid, _ = read_state(project.home / "airflow" / "state.json")["processes"]["scheduler"]
    for process in {psutil.Process(pid), *psutil.Process(pid).children(recursive=True)} - set(left):
        process.kill()
    busy = f"being written by pid {holder(project)} "
    with pytest.raises(BusyError, match=busy), write_lease(project, [ORDERS.gold_table]):
        pass
    assert airflow.stop(project)
    assert drivers(project) == []
    with write_lease(project, WRITTEN):
        pass
