"""Everything about Airflow: the DAGs, their operators, and a local Airflow."""
