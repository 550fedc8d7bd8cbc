"""All of Airflow: the DAGs, what their tasks run, and a local Airflow."""
