"""`lakehouse purge`: forget keys that were deleted long ago."""

from pulsar_lakehouse.cli import report
from pulsar_lakehouse.jobs.steps import open_lake_between_rounds, require
from pulsar_lakehouse.pipeline.loading import pipeline_of
from pulsar_lakehouse.settings import load_settings
from pulsar_lakehouse.silver.purge import purge


def purge_command() -> None:
    """Remove keys that were deleted longer ago than their entity keeps them."""
    settings = load_settings()
    pipeline = pipeline_of(settings)
    tables = [entity.table.name for entity in pipeline.entities]
    with open_lake_between_rounds(settings, tables, kind="maintenance") as lake:
        require(lake, tables, made_by="run")
        purged = {each.name: purge(lake, each, merges=pipeline.merges_of(each)) for each in pipeline.entities}
    line = "Purged: " + ", ".join(f"{count:,} {name}" for name, count in purged.items())
    report.say(line)
    report.note([line], settings)
