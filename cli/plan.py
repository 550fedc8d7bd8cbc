"""`lakehouse plan`: what the declarations make of what, and what is wrong with them, found without Spark."""

from pathlib import Path
from typing import Annotated

import typer

from cli import report
from lakehouse.errors import ConfigurationError
from lakehouse.settings import load_settings
from lakehouse.terminal import shown
from pipeline.graph import nodes, picture
from pipeline.loading import pipeline_of


def plan_command(
    picture_file: Annotated[
        Path | None, typer.Option("--picture", help="Draw the tables and where they come from, as SVG, to this file.")
    ] = None,
) -> None:
    """Check the declarations, without starting Spark, and show which tables are made from what.

    Exits with 78 if there are mistakes, with a line for each.
    """
    settings = load_settings()
    pipeline = pipeline_of(settings)
    report.plan(nodes(pipeline), title=f"Declared in {shown(settings.declarations)}")
    if picture_file is not None:
        try:
            picture_file.write_text(picture(pipeline))
        except OSError as error:
            raise ConfigurationError(f"--picture {picture_file}: can't be written: {error.strerror}") from None
