"""The DAGs of this project. Let `dags_folder` of Airflow's configuration be the folder of this file."""

from dags import maintenance, pipeline, reprocess  # noqa: F401
