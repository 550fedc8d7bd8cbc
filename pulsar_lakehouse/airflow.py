"""The DAGs. Airflow finds those that a file of its `dags_folder` imports from here."""

from pulsar_lakehouse.dags.maintenance import dag as maintenance
from pulsar_lakehouse.dags.pipeline import dag as pipeline
from pulsar_lakehouse.dags.reprocess import dag as reprocess

__all__ = ["maintenance", "pipeline", "reprocess"]
