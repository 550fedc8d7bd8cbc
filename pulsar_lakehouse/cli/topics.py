"""`lakehouse topics create`: the topics of the pipeline."""

import typer

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.local import broker
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.pulsar.topic_admin import create_published, create_topics
from pulsar_lakehouse.pulsar.topic_names import topics_in_pulsar
from pulsar_lakehouse.settings import load_settings

app = typer.Typer(no_args_is_help=True)


@app.command("create")
def create() -> None:
    """Create the declared topics. Those that exist keep their messages; their schema and retention are updated.

    A topic keeps a registered schema of another type, or one that refuses the declared one.
    """
    settings = load_settings()
    pipeline, endpoint = pipeline_of(settings), broker.healthy_endpoint(settings)
    create_published(pipeline.published_topics, endpoint, settings)
    create_topics(pipeline.topics, endpoint, settings)
    made = (each.own_name for topic in pipeline.topics for each in topics_in_pulsar(topic, endpoint, settings))
    names = [*made, *pipeline.published_topics]
    report.say(f"Topics in {settings.pulsar.namespace}: {', '.join(names)}")
