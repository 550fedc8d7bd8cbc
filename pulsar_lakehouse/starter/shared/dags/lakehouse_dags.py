"""The DAGs of this project. `lakehouse airflow up` finds them by itself.

For an Airflow of your own, let `dags_folder` be the folder of this file, and give its processes LAKEHOUSE_DECLARATIONS
and the settings of lakehouse.toml as variables, such as LAKEHOUSE_PULSAR__NAMESPACE.
"""

from pulsar_lakehouse.airflow import maintenance, pipeline, reprocess  # noqa: F401
