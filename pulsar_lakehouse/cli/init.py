"""`lakehouse init`: a project to begin with."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.draft import draft, names_of
from pulsar_lakehouse.pulsar.endpoint import Endpoint
from pulsar_lakehouse.pulsar.topic_contents import contents_of_topics
from pulsar_lakehouse.settings import DECLARATIONS, FILE, Settings, load_settings

STARTER = Path(__file__).resolve().parent.parent / "starter"
"""What projects are made of: `shared`, and `stores` or `drafts`."""


def init_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or an empty folder.")],
    topics: Annotated[list[str] | None, typer.Argument(help="With --from-topics: these. Default: all.")] = None,
    from_topics: Annotated[
        bool,
        typer.Option(
            "--from-topics",
            help="Draft declarations of the topics that are in the namespace, from their schemas and messages.",
        ),
    ] = False,
) -> None:
    """Make a project: declarations, a test of them, messages to send, settings, and a folder of DAGs for Airflow."""
    if topics and not from_topics:
        raise ConfigurationError(f"{topics[0]}: topics can be named with --from-topics only")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder}: is there already: must be a new or an empty folder")
    if from_topics:
        settings = load_settings()
        endpoint = broker.healthy_endpoint(settings)
        drafts = _drafts(topics or [], endpoint, settings)
        _copy(folder, "drafts")
        (folder / DECLARATIONS).mkdir()
        for name, text in drafts.items():
            (folder / DECLARATIONS / f"{name}.py").write_text(text)
        _set(folder, settings.pulsar.namespace, endpoint)
    else:
        _copy(folder, "stores")
        _set(folder, f"public/{_name(folder)}")
    report.say(f"Made {folder}. Go on with `cd {folder}` and `lakehouse plan`: README.md has all commands.")


def _drafts(topics: Sequence[str], endpoint: Endpoint, settings: Settings) -> dict[str, str]:
    """The text of a file for each topic that can be declared. Raises ConfigurationError if there is none."""
    drafts, problems = {}, []
    found = contents_of_topics(topics, endpoint, settings)
    names = names_of(found)
    for contents in found:
        name = names[contents.topic]
        try:
            drafts[name] = draft(contents, name)
        except ConfigurationError as error:
            problems.append(str(error))
    if not drafts:
        raise ConfigurationError("; ".join(problems))
    for problem in problems:
        report.say(f"Left out: {problem}")
    return drafts


def _copy(folder: Path, kind: str) -> None:
    for source in ("shared", kind):
        shutil.copytree(STARTER / source, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    readme = folder / "README.md"
    readme.write_text(readme.read_text().replace("# starter", f"# {_name(folder)}", 1))


def _set(folder: Path, namespace: str, endpoint: Endpoint | None = None) -> None:
    """Put the namespace, and the cluster if there is one, into the project's settings."""
    lines = (folder / FILE).read_text().split("\n")
    for name, value in ({"namespace": namespace} | ({} if endpoint is None else vars(endpoint))).items():
        given = f"{name} = {json.dumps(value)}"
        # The line of a setting can be a comment.
        lines = [given if line.removeprefix("# ").startswith(f"{name} = ") else line for line in lines]
    (folder / FILE).write_text("\n".join(lines))


def _name(folder: Path) -> str:
    """The folder's name, as it can be part of a namespace."""
    return re.sub(r"[^\w-]+", "-", folder.resolve().name, flags=re.ASCII).strip("-").lower() or "lakehouse"
