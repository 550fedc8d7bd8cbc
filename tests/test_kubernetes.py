"""The manifests in `kubernetes` are valid, and name commands, settings, ports and paths that exist."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import validate
from typer.testing import CliRunner

from pulsar_lakehouse.cli.commands import app
from pulsar_lakehouse.errors import BusyError
from pulsar_lakehouse.jobs.metrics import Metrics, application
from pulsar_lakehouse.leases.leases import PATIENCE
from pulsar_lakehouse.settings import PREFIX, Settings, load_settings

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "kubernetes"
OLDEST, NEWEST = "1.31", "1.37"
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
USERS = '{"ada": "a-long-password"}'

Manifest = dict[str, Any]


def documents(*names: str) -> Iterator[Manifest]:
    for name in names:
        yield from yaml.safe_load_all((FOLDER / name).read_text())


COMPLETE = [
    *documents("base/home.yaml", "base/pipeline.yaml", "base/maintenance.yaml", "base/checks.yaml"),
    *documents("sql/sql.yaml", "executors/account.yaml", "executors/executor.yaml"),
]
BASE = next(documents("base/kustomization.yaml"))
EXAMPLE = next(documents("example/kustomization.yaml"))
(PATCH,) = documents("executors/pipeline.yaml")


def pod_of(manifest: Manifest) -> Manifest | None:
    """The specification of a manifest's pods; None if it has none."""
    if manifest["kind"] == "Pod":
        return manifest["spec"]  # type: ignore[no-any-return]
    spec = manifest.get("spec", {})
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
    return template.get("spec")  # type: ignore[no-any-return]


PODS = {each["metadata"]["name"]: pod for each in COMPLETE if each["kind"] != "Pod" and (pod := pod_of(each))}
CONTAINERS = {it["name"]: it for pod in PODS.values() for it in (*pod.get("initContainers", ()), *pod["containers"])}
PIPELINE = CONTAINERS["pipeline"]


def literals(kustomization: Manifest) -> dict[str, str]:
    """The settings that a kustomization gives to all pods."""
    (settings,) = kustomization["configMapGenerator"]
    return dict(each.split("=", 1) for each in settings["literals"])


def settings_of(container: Manifest, shared: dict[str, str]) -> Settings:
    """The settings of a container, with what Kubernetes puts in their place."""
    given = dict(shared)
    for variable in container.get("env", ()):
        given[variable["name"]] = variable.get("value", USERS)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            if name.startswith(PREFIX):
                patch.setenv(name, value)
        return load_settings()


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata'].get('name', '')}".strip()


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("manifest", COMPLETE, ids=name_of)
def test_a_manifest_is_valid(manifest: Manifest, version: str) -> None:
    assert validate(manifest, version, strict=True) == version


def test_each_file_is_used() -> None:
    for kustomization in FOLDER.glob("*/kustomization.yaml"):
        there = {file.name for file in kustomization.parent.iterdir()} - {"kustomization.yaml"}
        declared = yaml.safe_load(kustomization.read_text())
        patches = [patch["path"] for patch in declared.get("patches", ())]
        files = [file for each in declared.get("configMapGenerator", ()) for file in each.get("files", ())]
        assert there == {*declared["resources"], *patches, *files} - {"../base"}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_runs_a_command_of_the_image_of_compose(name: str) -> None:
    container = CONTAINERS[name]
    lakehouse, *words = container["command"]
    assert (lakehouse, container["image"]) == ("lakehouse", COMPOSE["topics"]["image"])
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


@pytest.mark.parametrize("shared", [literals(BASE), literals(BASE) | literals(EXAMPLE)], ids=["base", "example"])
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_takes_all_its_settings(name: str, shared: dict[str, str]) -> None:
    settings = settings_of(CONTAINERS[name], shared)
    assert [str(settings.home)] == [
        each["mountPath"] for each in CONTAINERS[name]["volumeMounts"] if each["name"] == "home"
    ]


def test_the_probes_ask_what_the_pipeline_serves(settings: Settings) -> None:
    assert {port["name"]: port["containerPort"] for port in PIPELINE["ports"]} == {
        "metrics": settings_of(PIPELINE, literals(BASE)).metrics.port
    }
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked, said = PIPELINE[probe]["httpGet"], list[str]()
        application(Metrics(settings), None)({"PATH_INFO": asked["path"]}, lambda code, _, said=said: said.append(code))
        assert (asked["port"], said[0] in ("200 OK", "503 Service Unavailable")) == ("metrics", True)


def test_a_pipeline_that_waits_for_maintenance_is_not_ended() -> None:
    probe, settings = PIPELINE["startupProbe"], load_settings()
    assert probe["periodSeconds"] * probe["failureThreshold"] > settings.run.broker_timeout + PATIENCE


def test_jobs_are_tried_again_if_tables_are_busy() -> None:
    jobs = [each["spec"]["jobTemplate"]["spec"] for each in COMPLETE if each["kind"] == "CronJob"]
    rules = [rule["onExitCodes"]["values"] for job in jobs for rule in job["podFailurePolicy"]["rules"]]
    assert rules == [[BusyError.exit_code]] * len(jobs)


def test_all_pods_share_a_home_on_one_node_as_a_user_of_the_image() -> None:
    first, *others = PODS.values()
    for pod in others:
        assert (pod["securityContext"], pod["affinity"]) == (first["securityContext"], first["affinity"])
        assert first["volumes"][0] in pod["volumes"]
    assert f"useradd --uid {first['securityContext']['runAsUser']} " in DOCKERFILE


def test_no_container_may_more_than_an_ordinary_process() -> None:
    containers = [it for each in COMPLETE if (pod := pod_of(each)) for it in pod["containers"]]
    containers += [it for pod in PODS.values() for it in pod.get("initContainers", ())]
    allowed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert [each["name"] for each in containers if each["securityContext"] != allowed] == []
    pods = [pod for each in COMPLETE if (pod := pod_of(each))]
    assert [(pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) for pod in pods] == [
        (True, False)
    ] * len(pods)


def test_the_endpoint_has_its_port_and_its_certificate() -> None:
    container = CONTAINERS["sql"]
    settings = settings_of(container, literals(BASE))
    assert container["ports"] == [{"name": "sql", "containerPort": settings.serve.port}]
    folders = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert {str(settings.serve.tls_certificate), str(settings.serve.tls_key)} == {
        f"{folders['tls']}/tls.crt",  # what `kubectl create secret tls` names them
        f"{folders['tls']}/tls.key",
    }
    (service,) = (each for each in COMPLETE if each["kind"] == "Service")
    assert [each["port"] for each in service["spec"]["ports"]] == [settings.serve.port]


def test_the_pipeline_can_be_the_driver_of_executors() -> None:
    pod = PATCH["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    spark = settings_of(container, literals(BASE)).spark
    assert spark.master.startswith("k8s://")
    referred = set(re.findall(r"\$\((\w+)\)", json.dumps(spark.conf)))
    names = [variable["name"] for variable in container["env"]]
    assert referred <= set(names[: names.index(f"{PREFIX}SPARK__CONF")])
    (mount,) = container["volumeMounts"]
    template = Path(spark.conf["spark.kubernetes.executor.podTemplateFile"])
    assert (str(template.parent), (FOLDER / "executors" / template.name).exists()) == (mount["mountPath"], True)


def test_executors_find_spark_in_the_image() -> None:
    (executor,) = documents("executors/executor.yaml")
    (home,) = (each["value"] for each in executor["spec"]["containers"][0]["env"] if each["name"] == "SPARK_HOME")
    ((python, folder),) = re.findall(
        r"^ARG PYTHON=(python:[\d.]+).*?^WORKDIR (\S+)", DOCKERFILE, re.DOTALL | re.MULTILINE
    )
    assert home == f"{folder}/.venv/lib/{python.replace(':', '')}/site-packages/pyspark"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, which has kustomize")
def test_the_example_can_be_built() -> None:
    built = subprocess.run(["kubectl", "kustomize", FOLDER / "example"], capture_output=True, text=True)
    assert built.stderr == ""
    manifests = {name_of(each): each for each in yaml.safe_load_all(built.stdout)}
    for name in manifests.keys() - {"PodMonitor lakehouse"}:  # its schema comes with Prometheus' operator
        assert validate(manifests[name], NEWEST, strict=True) == NEWEST
    pods = [pod for each in manifests.values() if (pod := pod_of(each))]
    assert {each["image"] for pod in pods for each in pod["containers"]} == {literals(EXAMPLE)["EXECUTOR_IMAGE"]}
    (pipeline,) = (each for pod in pods for each in pod["containers"] if each["name"] == "pipeline")
    settings = settings_of(pipeline, literals(BASE) | literals(EXAMPLE))
    assert (settings.metrics.port, settings.spark.master[:6]) == (9464, "k8s://")
