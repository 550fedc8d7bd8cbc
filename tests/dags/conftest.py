"""The environment of the tests' own Airflow. It must be set before anything imports airflow."""

import os
import tempfile
from pathlib import Path

os.environ.update(
    AIRFLOW_HOME=tempfile.mkdtemp(),
    AIRFLOW__CORE__DAGS_FOLDER=str(Path(__file__).parent.parent.parent / "dags"),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="True",
    AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
)
