"""The services of docker-compose.yml run the same commands as a local lakehouse, with settings that exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from airflow.configuration import conf
from pydantic import SecretStr

from pulsar_lakehouse.downloads.artifacts import LIST
from pulsar_lakehouse.jvm.class_archives import FOLDER as PACKAGED_JAVA
from pulsar_lakehouse.local import airflow, broker
from pulsar_lakehouse.settings import load_settings

FILE = Path(__file__).parent.parent.parent / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]


def given(service: str, prefix: str) -> dict[str, str]:
    """A service's variables with this prefix, except those that come from the shell and are null in YAML."""
    variables = SERVICES[service]["environment"].items()
    return {name: value for name, value in variables if name.startswith(prefix) and value is not None}


def test_airflow_is_made_of_the_same_components() -> None:
    commands = {name: service["command"] for name, service in SERVICES.items() if name.startswith("airflow-")}
    *_, setup = commands.pop("airflow-init")
    assert commands == {f"airflow-{component}": f"airflow {component}" for component in airflow.COMPONENTS}
    migrate, pool, _ = setup.splitlines()
    assert migrate == "airflow db migrate"
    assert shlex.split(pool) == ["airflow", "pools", "set", *airflow.POOL]


@pytest.mark.parametrize("service", [f"airflow-{component}" for component in airflow.COMPONENTS])
def test_airflow_knows_all_that_it_is_told(service: str) -> None:
    options = {tuple(name.lower().split("__")[1:]) for name in given(service, "AIRFLOW__")}
    known = {(name, option) for name, each in conf.configuration_description.items() for option in each["options"]}
    assert options - known == set()


@pytest.mark.parametrize("service", ["topics", "spark-worker", "airflow-scheduler"])
def test_the_lakehouse_takes_all_settings(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in given(service, "LAKEHOUSE_").items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.pulsar.service_url == "pulsar://pulsar:6650"
    assert settings.spark.master == "spark://spark-master:7077"


@pytest.mark.parametrize("service", [f"airflow-{component}" for component in airflow.COMPONENTS])
def test_secrets_of_tasks_come_from_the_shell(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [name for name, value in SERVICES[service]["environment"].items() if value is None]
    for name in passed:
        monkeypatch.setenv(name, "postgresql://there")
    settings = load_settings()
    assert settings.airflow.alert_url == settings.postgres.url == SecretStr("postgresql://there")


def test_the_sql_endpoint_takes_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"${SQL_USERS:-}": '{"ada": "a-long-password"}'}
    for name, value in given("sql", "LAKEHOUSE_").items():
        monkeypatch.setenv(name, users.get(value, value))
    settings = load_settings()
    assert SERVICES["sql"]["ports"] == [f"127.0.0.1:{settings.serve.port}:{settings.serve.port}"]
    assert (settings.spark.master, settings.serve.host, list(settings.serve.users)) == ("local[2]", "0.0.0.0", ["ada"])
    assert f"./tls:{Path(str(settings.serve.tls_certificate)).parent}:ro" in SERVICES["sql"]["volumes"]


def test_metrics_are_served_where_prometheus_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in given("metrics", "LAKEHOUSE_").items():
        monkeypatch.setenv(name, value)
    [job] = yaml.safe_load((FILE.parent / "monitoring" / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"metrics:{load_settings().metrics.port}"]}]


def test_the_broker_is_of_the_same_version_and_started_the_same_way() -> None:
    image = SERVICES["pulsar"]["image"]
    versions = {each.attrib["name"]: each.attrib["rev"] for each in ElementTree.parse(LIST).iter("dependency")}
    assert image == f"apachepulsar/pulsar:{versions['pulsar-server-distribution']}"
    assert " ".join(broker.STANDALONE) in re.sub(r"\s+", " ", SERVICES["pulsar"]["command"])


def test_all_of_spark_has_the_java_of_the_package() -> None:
    dockerfile = (FILE.parent / "Dockerfile").read_text()
    (folder,) = re.findall(r"^WORKDIR (\S+)", dockerfile, re.MULTILINE)
    java = f"{folder}/.venv/{PACKAGED_JAVA.relative_to(sys.prefix)}"
    assert f":{java}/bin:" in dockerfile  # where the template of executors finds it
    assert "openjdk" not in dockerfile
    started = [service for service in SERVICES.values() if "spark-class" in service.get("command", "")]
    assert [service["environment"]["JAVA_HOME"] for service in started] == [java, java]


def test_what_git_ignores_is_not_in_the_image() -> None:
    ignored, left_out = ((FILE.parent / name).read_text().split("\n") for name in (".gitignore", ".dockerignore"))
    named = {line.strip("/") for line in ignored if line}
    assert named - {line.removeprefix("**/") for line in left_out} == set()


def test_each_service_that_another_waits_for_is_there() -> None:
    waited_for = {name for service in SERVICES.values() for name in service.get("depends_on", ())}
    assert waited_for <= set(SERVICES)


def test_ports_are_those_of_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_grafana_does_not_start_without_a_password() -> None:
    command = [word.replace("$$", "$") for word in SERVICES["grafana"]["entrypoint"]]
    done = subprocess.run(command, env={"GRAFANA_PASSWORD": ""}, capture_output=True, text=True)
    assert (done.returncode != 0, "GRAFANA_PASSWORD: of the user admin" in done.stderr) == (True, True)
