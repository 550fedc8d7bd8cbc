"""Settings of a Spark session that hold for a block."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

ADAPTIVE = "spark.sql.adaptive.enabled"
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""No code is generated."""


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session for the block, and restore them at the end."""
    before = [(name, spark.conf.get(name, None)) for name in settings]
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, held in before:
            spark.conf.unset(name) if held is None else spark.conf.set(name, held)


@contextmanager
def described(spark: SparkSession, description: str) -> Iterator[None]:
    """Spark's pages show the description with the jobs of the block."""
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(description)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]  # None removes it
